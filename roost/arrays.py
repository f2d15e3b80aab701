"""Vectors as numpy arrays, from the bytes that msgpack carries. Nothing is copied until it is computed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ELEMENTS: Mapping[str, str] = {
    "float32": "<f4",
    "float16": "<f2",
    "int8": "i1",
    "uint8": "u1",
    "binary": "i1",
    "ubinary": "u1",
}
_OFFSET: Mapping[str, int] = {"int8": 0, "uint8": 128}


@dataclass(frozen=True, slots=True)
class Array:
    """One vector of `dims`, or a row of `dims` for each token. `values` has the dtype that was asked for.

    `binary` and `ubinary` hold eight dimensions in each element; `dims` counts dimensions all the same.
    """

    values: NDArray[Any]
    dims: int
    dtype: str
    scale: float | None = None

    @property
    def floats(self) -> NDArray[np.float32]:
        """As float32: integers by their scale, bits as 1 and 0."""
        if self.dtype in _OFFSET:
            whole = self.values.astype(np.float32) - np.float32(_OFFSET[self.dtype])
            return np.asarray(whole * np.float32(self.scale or 0.0), dtype=np.float32)
        return (self.bits if self.dtype.endswith("binary") else self.values).astype(np.float32)

    @property
    def bits(self) -> NDArray[np.bool_]:
        """One truth for each dimension: whether its number is above 0."""
        if self.dtype.endswith("binary"):
            octets = self.values.view(np.uint8)
            if self.dtype == "binary":
                octets = octets ^ np.uint8(0x80)  # the same as adding 128 to the signed byte
            return np.unpackbits(octets, axis=-1, count=self.dims).astype(np.bool_)
        return np.asarray(self.values > _OFFSET.get(self.dtype, 0))


@dataclass(frozen=True, slots=True)
class SparseVector:
    """The entries of a vocabulary of `dims` that are not zero, by rising index (int32)."""

    indices: NDArray[np.int32]
    values: NDArray[Any]
    dims: int

    @property
    def dense(self) -> NDArray[np.float32]:
        """All of its dimensions, as float32 of shape (dims,)."""
        whole = np.zeros(self.dims, dtype=np.float32)
        whole[self.indices] = self.values
        return whole


def dense_of(told: Mapping[str, Any]) -> Array:
    """A dense vector of a result."""
    return Array(_numbers(told["values"], told["dtype"]), told["dims"], told["dtype"], told.get("scale"))


def multivector_of(told: Mapping[str, Any]) -> Array:
    """The vectors of an item's tokens, as rows: (tokens, dims), or for bits (tokens, dims / 8)."""
    flat = _numbers(told["values"], told["dtype"])
    rows = told["num_tokens"]
    return Array(flat.reshape(rows, -1 if rows else 0), told["token_dims"], told["dtype"], told.get("scale"))


def sparse_of(told: Mapping[str, Any]) -> SparseVector:
    """A sparse vector of a result."""
    return SparseVector(np.frombuffer(told["indices"], "<i4"), _numbers(told["values"], told["dtype"]), told["dims"])


def _numbers(values: bytes, dtype: str) -> NDArray[Any]:
    return np.frombuffer(values, _ELEMENTS[dtype])
