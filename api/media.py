"""The two forms of a body, JSON and msgpack, and which one a caller asked for."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgpack
import numpy as np
import orjson

from api.errors import NotAcceptable


class Media(StrEnum):
    """The Content-Type of a body."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"


MSGPACK_NAMES = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
"""How msgpack is named, in either direction."""

_NAMES = {
    "": Media.JSON,
    "*/*": Media.JSON,
    "application/*": Media.JSON,
    "application/json": Media.JSON,
    **dict.fromkeys(MSGPACK_NAMES, Media.MSGPACK),
}

_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_UTC_Z


def media_of(accept: str | None) -> Media:
    """The form that an Accept header asks for; the first one we have among those of the highest q.

    Raises NotAcceptable when none of them is ours.
    """
    if accept is None or accept in _NAMES:
        return _NAMES[accept or ""]
    best: tuple[float, int, Media] | None = None
    for place, part in enumerate(accept.split(",")):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = _quality(parameters)
        if name in _NAMES and quality > 0 and (best is None or quality > best[0]):
            best = (quality, place, _NAMES[name])
    if best is None:
        raise NotAcceptable(param="Accept")
    return best[2]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def dumps(value: Any, media: Media = Media.JSON) -> bytes:
    """The bytes of a reply. Times are RFC 3339 in UTC in both forms; arrays are lists in JSON."""
    if media is Media.JSON:
        return orjson.dumps(value, default=_plain, option=_JSON)
    return bytes(msgpack.packb(value, default=_plain))


def dumps_in_pieces(value: Any, media: Media = Media.JSON) -> bytes:
    """The same bytes, for a thread: the writer holds the interpreter while it writes, so long lists go piece by piece.

    The lists are the value itself or directly inside it.
    """
    if media is Media.JSON:
        if isinstance(value, list):
            value = _written(value)
        elif isinstance(value, dict):
            value = {name: _written(one) if isinstance(one, list) else one for name, one in value.items()}
    return dumps(value, media)


def _written(pieces: list[Any]) -> list[Any]:
    return [orjson.Fragment(dumps(piece)) for piece in pieces]


def _plain(value: Any) -> Any:
    """What neither writer knows."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(type(value).__name__)
