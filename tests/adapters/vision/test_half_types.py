"""Half types: the families that hold their weights in one answer nearly as in float32; the one that cannot says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from engine.adapters.grounding_dino import GroundingDinoAdapter
from engine.families import adapter_class
from engine.types import Output
from tests.adapters.case import plain
from tests.adapters.conftest import answers
from tests.adapters.vision.conftest import Load, case_of

HALF = [("vision_text", "clip"), ("vision_text", "siglip2"), ("page_images", "colpali-encode"), ("owlv2", "owlv2")]


def numbers(output: Any) -> list[Any]:
    """All vectors of an answer, or the scores of its boxes."""
    assert isinstance(output, Output), output
    found = plain(output)
    if "objects" in found:
        return [[one["score"] for one in found["objects"]]]
    vectors = np.atleast_2d(found.get("dense", found.get("multivector")))
    return list(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.mark.parametrize(("family", "name"), HALF, ids=[name for _, name in HALF])
def test_a_half_type_changes_little(load: Load, family: str, name: str) -> None:
    case = case_of(family, name)
    spec, folder = case.model()
    kind = adapter_class(family)
    half = kind(spec, kind.options.model_validate({"dtype": "bfloat16"}), folder, "cpu")
    half.load()
    more = {"threshold": 0.0} if family == "owlv2" else {}
    found, whole = (answers(adapter, case, case.items(), **more) for adapter in (half, load(family, name)))
    for one, other in zip(found, whole, strict=True):
        for ours, exact in zip(numbers(one), numbers(other), strict=True):
            if family == "owlv2":
                assert ours == pytest.approx(exact, abs=0.05)
            else:
                assert float(np.dot(ours, exact)) > 0.98
    assert half.held() == pytest.approx(half.footprint().weights, rel=0.05)
    half.unload()


def test_grounding_dino_is_held_in_float32() -> None:
    with pytest.raises(ValidationError, match="dtype"):
        GroundingDinoAdapter.options.model_validate({"dtype": "bfloat16"})
