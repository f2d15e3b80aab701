"""The last step of every vector: cut, normalise, write in the type that was asked for. Pure, numpy only.

A finished vector is the map `{"dims", "dtype", "values"}`: `values` are little-endian bytes, and `dims` counts
dimensions even where they are packed eight to a byte. The order is fixed: cut to `dimensions`, then L2-normalise if
asked (so a cut vector has norm 1 again), then the type:

* `float32`, `float16`: the values as they are.
* `int8`: `round(x / scale)` with `scale = max|x| / 127` of this vector, given as `"scale"`; `x ≈ value · scale`. The
  scale is symmetric, so cosines between such vectors are those of the originals.
* `uint8`: the same, moved up by 128; `x ≈ (value - 128) · scale`.
* `binary`, `ubinary`: one bit a dimension, 1 where `x > 0`, first dimension in the highest bit; `binary` stores each
  byte minus 128 as a signed one. This is what `sentence_transformers.quantize_embeddings` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.options import EncodeOptions, OutputDtype
from engine.errors import EngineError, ItemRejected, NotFinite

Matrix = NDArray[np.float32]
Vector = dict[str, Any]
_Key = tuple[bool, int | None, OutputDtype]

_NOT_FINITE = "The model gave NaN or infinity for this item; the input may be outside what the model can take."
_NOT_HALF = "A value of this vector does not fit float16; ask for float32 or for a normalised vector."


def finish_vectors(matrix: NDArray[Any], options: Sequence[EncodeOptions]) -> list[Vector | EngineError]:
    """The finished map of each row, in order, each under its own options; rows of equal options go through at once.

    A row that is not finite becomes a NotFinite in its place, and one whose `dimensions` the model does not have an
    ItemRejected; their neighbours are not touched.
    """
    rows = np.asarray(matrix, dtype=np.float32)
    if rows.ndim != 2 or len(rows) != len(options):
        raise ValueError(f"a matrix of shape {rows.shape} does not fit {len(options)} items")
    groups: dict[_Key, list[int]] = {}
    for index, option in enumerate(options):
        groups.setdefault((option.normalize, option.dimensions, option.output_dtype), []).append(index)
    if len(groups) == 1:
        return _finish(rows, next(iter(groups)))
    out: list[Vector | EngineError] = [NotFinite()] * len(rows)
    for key, indices in groups.items():
        for index, finished in zip(indices, _finish(rows[indices], key), strict=True):
            out[index] = finished
    return out


def _finish(rows: Matrix, key: _Key) -> list[Vector | EngineError]:
    normalize, dimensions, dtype = key
    if dimensions is not None and not 1 <= dimensions <= rows.shape[1]:
        message = f"The model gives {rows.shape[1]} dimensions, so {dimensions} cannot be had."
        return [ItemRejected(message, param="options.dimensions") for _ in rows]
    finite = _finite(rows)
    if not finite.all():
        rows = np.where(finite[:, None], rows, np.float32(0))
    if dimensions is not None:
        rows = rows[:, :dimensions]
    if normalize:
        rows = _normalized(rows)
    packed, scales = _packed(rows, dtype)
    data, width, dims = packed.tobytes(), packed.shape[1] * packed.itemsize, rows.shape[1]
    out: list[Vector | EngineError] = []
    for index in range(len(rows)):
        if not finite[index]:
            out.append(NotFinite(_NOT_FINITE))
            continue
        vector: Vector = {"dims": dims, "dtype": dtype.value, "values": data[index * width : (index + 1) * width]}
        if scales is not None:
            vector["scale"] = float(scales[index])
        out.append(vector)
    if dtype is OutputDtype.FLOAT16:
        for index in np.flatnonzero(~_finite(packed)).tolist():
            out[index] = NotFinite(_NOT_HALF)
    return out


def _finite(rows: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(rows).all(axis=1))


def _normalized(rows: Matrix) -> Matrix:
    """Rows of norm 1; a zero row stays zero. The norm is taken in float64, which no float32 row overflows."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return np.asarray(rows / np.maximum(norms, 1e-12)[:, None], dtype=np.float32)


def _packed(rows: Matrix, dtype: OutputDtype) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    match dtype:
        case OutputDtype.FLOAT32:
            return np.ascontiguousarray(rows, dtype="<f4"), None
        case OutputDtype.FLOAT16:
            with np.errstate(over="ignore"):
                return rows.astype("<f2"), None
        case OutputDtype.UBINARY:
            return np.packbits(rows > 0, axis=1), None
        case OutputDtype.BINARY:
            return (np.packbits(rows > 0, axis=1) ^ np.uint8(128)).view(np.int8), None
        case OutputDtype.INT8 | OutputDtype.UINT8:
            return _scaled(rows, dtype)


def _scaled(rows: Matrix, dtype: OutputDtype) -> tuple[NDArray[Any], NDArray[np.float32]]:
    peaks = np.abs(rows).max(axis=1, initial=0)
    scales = np.where(peaks > 0, peaks / np.float32(127), np.float32(1)).astype(np.float32)
    # The smallest floats have a scale that rounds to zero or to a coarse step: clip rather than wrap around.
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.nan_to_num(np.clip(np.rint(rows / scales[:, None]), -127, 127))
    if dtype is OutputDtype.INT8:
        return whole.astype(np.int8), scales
    return (whole + 128).astype(np.uint8), scales
