"""A stored result as its callers see it: JSON with lists of numbers or base64, or msgpack with the bytes themselves.

Arrays go from the stored bytes to the reply without a Python object per number.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from api.media import Media
from tasks.errors import InvalidRequest
from tasks.results import unpack_rows


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


def result_object(
    job_id: str, status: str, model: str, usage: Mapping[str, int] | None, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """The body of a result reply."""
    return {"id": job_id, "object": "result", "status": status, "model": model, "items": rows, "usage": usage}


def rows_of(result: bytes, media: Media, encoding: Encoding) -> list[dict[str, Any]]:
    """One map per item, in the order of the request, ready for the writer of `media`."""
    rows = unpack_rows(result)
    for row in rows:
        for name, value in row.items():
            if isinstance(value, dict) and "values" in value:
                row[name] = _array(value, media, encoding)
    return rows


def _array(stored: Mapping[str, Any], media: Media, encoding: Encoding) -> dict[str, Any]:
    values: Any = stored["values"]
    if media is Media.JSON:
        values = b64encode(values).decode() if encoding is Encoding.BASE64 else _numbers(values, stored["dtype"])
    return {**stored, "values": values}


def _numbers(values: bytes, dtype: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(values, _DTYPES[dtype])


def encoding_of(text: str | None) -> Encoding:
    """The encoding that a caller asked for. Raises InvalidRequest."""
    if text is None:
        return Encoding.FLOAT
    try:
        return Encoding(text)
    except ValueError:
        raise InvalidRequest("'encoding' must be 'float' or 'base64'.", param="encoding") from None
