"""Arrays as the peer's client writes and reads them in msgpack: maps with binary keys. Pure.

`{b"nd": true, b"type": "<f4", b"kind": b"", b"shape": [384], b"data": bytes}`; a number by itself has `b"nd": false`,
and no shape. Stored bytes go into a reply as they are, without a Python object per number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from api.media import Media
from tasks.errors import InvalidRequest
from tasks.rendering import Encoding, json_rows

TYPES: Mapping[str, str] = {
    "float32": "<f4",
    "float16": "<f2",
    "int8": "|i1",
    "uint8": "|u1",
    "binary": "|u1",
    "ubinary": "|u1",
}
"""The numpy type of each output dtype. The peer packs bits into unsigned bytes, for `binary` as for `ubinary`."""

_INDICES = "<i4"
_NUMBERS = frozenset(
    {"|b1", "|i1", "|u1", *(f"{order}{kind}{size}" for order in "<>" for kind in "fiu" for size in (2, 4, 8))}
)
_STORED = {"<f4": "float32", "<f2": "float16"}
_MARK, _TYPE, _KIND, _SHAPE, _DATA = b"nd", b"type", b"kind", b"shape", b"data"


def array(data: bytes, dtype: str, *shape: int) -> dict[bytes, Any]:
    """Little-endian bytes as an array of a numpy type."""
    return {_MARK: True, _TYPE: dtype, _KIND: b"", _SHAPE: list(shape), _DATA: data}


def is_array(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether a decoded value is an array of the client, or a number of numpy's."""
    return isinstance(value, Mapping) and _MARK in value


def number(value: object) -> object:
    """A number of numpy's as a plain one; anything else as it is."""
    if not isinstance(value, Mapping) or value.get(_MARK) is not False:
        return value
    data, dtype = value.get(_DATA), value.get(_TYPE)
    if not isinstance(dtype, str) or dtype not in _NUMBERS:
        return value
    if not isinstance(data, bytes) or len(data) != np.dtype(dtype).itemsize:
        return value
    return np.frombuffer(data, dtype)[0].item()


def vectors(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """An array of a row for each token as the native API takes it. Raises InvalidRequest, which names `where`."""
    dtype, shape, data = value.get(_TYPE), value.get(_SHAPE), value.get(_DATA)
    if value[_MARK] is not True or not isinstance(dtype, str) or dtype not in _NUMBERS or value.get(_KIND):
        raise _refused(where, "must be an array of numbers")
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        raise _refused(where, "must have two dimensions: a row for each token")
    if not isinstance(data, bytes) or len(data) != shape[0] * shape[1] * np.dtype(dtype).itemsize:
        raise _refused(where, "must have as many bytes as its shape says")
    if dtype not in _STORED:
        with np.errstate(over="ignore"):
            data, dtype = np.frombuffer(data, dtype).astype("<f4").tobytes(), "<f4"
    return {"num_tokens": shape[0], "token_dims": shape[1], "dtype": _STORED[dtype], "values": data}


def _refused(where: str, said: str) -> InvalidRequest:
    return InvalidRequest(f"{where!r} {said}.", param=where)


def written(rows: Sequence[dict[str, Any]], media: Media) -> list[dict[str, Any]]:
    """Rows of stored vectors, made ready for the writer of `media`; the rows are changed."""
    if media is Media.JSON:
        return json_rows(list(rows), Encoding.FLOAT)
    for row in rows:
        if (dense := row.get("dense")) is not None:
            dense["values"] = _flat(dense["values"], TYPES[dense["dtype"]])
        if (sparse := row.get("sparse")) is not None:
            sparse["indices"] = _flat(sparse["indices"], _INDICES)
            sparse["values"] = _flat(sparse["values"], TYPES[sparse["dtype"]])
        if (multivector := row.get("multivector")) is not None:
            dtype = TYPES[multivector["dtype"]]
            shape = (multivector["num_tokens"], multivector["token_dims"])
            multivector["values"] = array(multivector["values"], dtype, *shape)
    return list(rows)


def _flat(data: bytes, dtype: str) -> dict[bytes, Any]:
    return array(data, dtype, len(data) // int(dtype[2:]))
