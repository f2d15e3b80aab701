"""Stored results as JSON has them: arrays as lists of numbers, or as base64 of their bytes. Pure.

Arrays go from the stored bytes to what is written without a Python object per number.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np


class Encoding(StrEnum):
    """How the numbers of a vector are written in JSON. msgpack always carries bytes."""

    FLOAT = "float"
    BASE64 = "base64"


_DTYPES = {
    "float32": "<f4",
    "float16": "<f2",
    "int8": "i1",
    "uint8": "u1",
    "binary": "i1",
    "ubinary": "u1",
}
"""The stored element of each output dtype. `binary` and `ubinary` hold eight dimensions in each element."""

_VECTORS = frozenset({"dense", "sparse", "multivector"})
"""The fields of a row that hold arrays; in all others there are plain values."""


def json_rows(rows: list[dict[str, Any]], encoding: Encoding) -> list[dict[str, Any]]:
    """The same rows, their arrays made ready for JSON."""
    for row in rows:
        for name in _VECTORS.intersection(row):
            row[name] = _written(row[name], encoding)
    return rows


def _written(stored: Mapping[str, Any], encoding: Encoding) -> dict[str, Any]:
    """An array for JSON: its numbers, those of a multivector row by row, or the stored bytes as base64."""
    found = dict(stored)
    for name, dtype in (("values", _DTYPES[stored["dtype"]]), ("indices", "<i4")):
        if name not in stored:
            continue
        if encoding is Encoding.BASE64:
            found[name] = b64encode(stored[name]).decode()
            continue
        numbers = np.frombuffer(stored[name], dtype)
        # Packed bits have fewer numbers in a row than dimensions, so the rows are what is counted.
        found[name] = numbers.reshape(stored["num_tokens"], -1) if "num_tokens" in stored and len(numbers) else numbers
    return found
