"""Sparse vectors: a weight for each entry of a vocabulary, of which nearly all are zero, and how they are written.

A finished one is the map `{"dims", "dtype", "indices", "values"}`: `indices` are little-endian int32, rising; `values`
are their weights, little-endian, `float32` or `float16`; `dims` is the size of the vocabulary. A weight of zero is left
out, so a vector may be empty. Pure, numpy only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.options import OutputDtype
from engine.errors import ItemRejected, NotFinite

_TYPES = {OutputDtype.FLOAT32: "<f4", OutputDtype.FLOAT16: "<f2"}
_NOT_HALF = "A weight of this vector does not fit float16; ask for float32."


def finish_sparse(
    indices: NDArray[Any], weights: NDArray[Any], dims: int, dtype: OutputDtype
) -> dict[str, Any] | NotFinite | ItemRejected:
    """The finished map of one item: `weights[i]` is that of entry `indices[i]`, each entry once, in any order.

    NotFinite where a weight is NaN or infinite, or too large for the type; ItemRejected for a type of other vectors.
    """
    written = _TYPES.get(dtype)
    if written is None:
        return ItemRejected(f"There is no {dtype.value} sparse vector.", param="options.output_dtype")
    values = np.asarray(weights, dtype=np.float32)
    if not np.isfinite(values).all():
        return NotFinite()
    with np.errstate(over="ignore", under="ignore"):
        values = values.astype(written)
    if not np.isfinite(values).all():
        return NotFinite(_NOT_HALF)
    order = np.argsort(indices, kind="stable")
    order = order[values[order] != 0]
    return {
        "dims": dims,
        "dtype": dtype.value,
        "indices": np.asarray(indices)[order].astype("<i4").tobytes(),
        "values": values[order].tobytes(),
    }
