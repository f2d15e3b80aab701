"""Precomputed vectors of an item as a caller sends them, brought into the one form in which adapters get them.

They come as lists of numbers, or in the very form in which `encode` gives them: a map of `num_tokens`, `token_dims`,
`dtype` and `values`, where the values are lists, base64 or (in msgpack) bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_VECTORS = 65_536
_STORED = {"float32": "<f4", "float16": "<f2"}
_NAMES = frozenset({"num_tokens", "token_dims", "dtype", "values"})


def as_vectors(given: object) -> dict[str, Any]:
    """`{"num_tokens", "token_dims", "values": float32 bytes}`, row by row. Raises ValueError with what is wrong."""
    rows = _packed(given) if isinstance(given, Mapping) else _rows(given)
    if len(rows) > MAX_VECTORS:
        raise ValueError(f"must have at most {MAX_VECTORS} vectors")
    if not np.isfinite(rows).all():
        raise ValueError("must have finite numbers")
    return {"num_tokens": rows.shape[0], "token_dims": rows.shape[1], "values": rows.astype("<f4").tobytes()}


def _rows(given: object) -> NDArray[Any]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not given:
        raise ValueError("must be a list of vectors, or what 'encode' gives as 'multivector'")
    if not all(isinstance(row, list) and row for row in given):
        raise ValueError("must have vectors that are lists of numbers")
    if len(set(map(len, given))) > 1:
        raise ValueError("must have vectors of one length")
    if not set(map(type, chain.from_iterable(given))) <= {float, int}:
        raise ValueError("must have vectors that are lists of numbers")
    with np.errstate(over="ignore"):
        return np.array(given, dtype=np.float64).astype("<f4")


def _packed(given: Mapping[Any, Any]) -> NDArray[Any]:
    unknown = next((name for name in given if name not in _NAMES), None)
    if unknown is not None:
        raise ValueError(f"has the unknown field {str(unknown)[:100]!r}")
    values, dtype = given.get("values"), given.get("dtype", "float32")
    if isinstance(values, list):
        rows = _rows(values)
    else:
        if not isinstance(dtype, str) or dtype not in _STORED:
            raise ValueError("must have the dtype 'float32' or 'float16'")
        rows = _read(values, _STORED[dtype], given.get("token_dims"))
    for place, name in enumerate(("num_tokens", "token_dims")):
        if given.get(name, rows.shape[place]) != rows.shape[place]:
            raise ValueError(f"must have as many values as {name!r} says")
    return rows


def _read(values: object, stored: str, width: object) -> NDArray[Any]:
    if isinstance(values, str):
        try:
            values = base64.b64decode(values, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("must have 'values' in base64 (standard alphabet, padded)") from None
    if not isinstance(values, bytes) or not values:
        raise ValueError("must have 'values': lists of numbers, base64 or bytes")
    size = np.dtype(stored).itemsize
    if isinstance(width, bool) or not isinstance(width, int) or width < 1 or len(values) % (width * size):
        raise ValueError("must have as many values as 'token_dims' says")
    return np.frombuffer(values, stored).reshape(-1, width)
