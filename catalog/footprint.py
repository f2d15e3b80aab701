"""What a model's weights take before its files are here, by what its spec says. Pure, so that the API can tell too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.schema import Spec

BYTES: Mapping[str, float] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8": 1,
    "int8": 1,
    "int4": 0.5,
}
"""Bytes of one weight, by what the families' load option `dtype` calls it."""

_USUAL = 4.0
"""Families without that option, or that leave the type to the device, are taken to load in float32 on a CPU."""


def expected_weights(spec: Spec, load: Mapping[str, Any]) -> int:
    """Bytes of the weights as the parameters count them in the load option `dtype`; 0 where the spec counts none.

    What some family stores besides (quantisation scales, an index) comes on top and is small. `load` is the profile's.
    """
    return int(spec.parameters * BYTES.get(str(load.get("dtype", "")), _USUAL))


def never_fits(weights: int, floor: int, budget: int, beside: int = 0) -> bool:
    """Whether a model of so many bytes, with `floor` for a batch, has no room even beside the pinned ones alone."""
    return weights + floor + beside > budget
