"""The form of an audio call: one file, and texts beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from starlette.requests import Request

from api.multipart import Part, parts
from tasks.errors import InvalidRequest

_FILE = "file"
_MAY_BE_EMPTY = ("prompt", "language")
"""Forms of some clients send these empty when there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The file, its name, and the other fields: a list for `…[]`, a text for any other."""

    data: bytes
    name: str
    fields: Mapping[str, Any]


async def upload_of(request: Request, limit: int) -> Upload:
    """Read the form, with its file in memory once. Raises InvalidRequest, or as `api.multipart.parts` does."""
    found: list[tuple[Part, BytesIO]] = []
    async for piece in parts(request, limit):
        if isinstance(piece, Part):
            found.append((piece, BytesIO()))
        else:
            found[-1][1].write(piece)
    files = [(part, data) for part, data in found if part.name == _FILE]
    if len(files) != 1:
        raise InvalidRequest(f"{_FILE!r} {'must be given once' if files else 'is missing'}.", param=_FILE)
    part, data = files[0]
    # Its bytes as they are: a buffer that is not written to any more gives them without a copy.
    return Upload(data.getvalue(), part.filename or "", _fields(found))


def _fields(found: list[tuple[Part, BytesIO]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part, data in found:
        if part.name == _FILE:
            continue
        value = _text(part, data)
        if part.name.endswith("[]"):
            fields.setdefault(part.name.removesuffix("[]"), []).append(value)
        elif part.name in fields:
            raise InvalidRequest(f"{part.name[:100]!r} must be given once.", param=part.name[:100])
        else:
            fields[part.name] = value
    return {name: value for name, value in fields.items() if value != "" or name not in _MAY_BE_EMPTY}


def _text(part: Part, data: BytesIO) -> str:
    try:
        return data.getvalue().decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{part.name[:100]!r} must be UTF-8 text.", param=part.name[:100]) from None
