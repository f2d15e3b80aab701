"""Reading a multipart/form-data body as it comes: nothing of it is kept here, and it is bounded as any body is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from api.body import check_length, pieces
from api.errors import UnsupportedMediaType
from tasks.errors import InvalidRequest, LimitExceeded

MAX_PARTS = 100


@dataclass(frozen=True, slots=True)
class Part:
    """The head of a part: the field's name, and for a file its own name and type."""

    name: str
    filename: str | None = None
    content_type: str | None = None


async def parts(request: Request, limit: int) -> AsyncIterator[Part | bytes]:
    """Each part's head, and after it the part's bytes in pieces as they come; an empty part has none.

    Raises UnsupportedMediaType, InvalidRequest, LimitExceeded, or what `api.body.pieces` raises.
    """
    boundary = _boundary(request)
    check_length(request.headers, limit)
    reader = _Reader(boundary)
    async for piece in pieces(request.receive, limit):
        for found in reader.feed(piece):
            yield found
    reader.finish()


def _boundary(request: Request) -> bytes:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if encoding != "identity" or kind != b"multipart/form-data":
        raise UnsupportedMediaType("Send multipart/form-data, without a Content-Encoding.", param="Content-Type")
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 70:
        raise UnsupportedMediaType("The Content-Type must tell a boundary of 1 to 70 characters.", param="Content-Type")
    return boundary


class _Reader:
    """Turns the parser's calls into parts and their bytes."""

    def __init__(self, boundary: bytes) -> None:
        self._found: list[Part | bytes] = []
        self._field = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._count = 0
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_field,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._head,
                "on_part_data": self._data,
                "on_end": self._end,
            },
        )

    def feed(self, piece: bytes) -> list[Part | bytes]:
        """What this piece of the body brought."""
        self._found = []
        try:
            self._parser.write(piece)
        except MultipartParseError:
            raise InvalidRequest("The body is not valid multipart/form-data.", param="body") from None
        return self._found

    def finish(self) -> None:
        """Raise InvalidRequest for a body that ended too soon."""
        if not self._ended:
            raise InvalidRequest("The body ends before its last boundary.", param="body")

    def _begin(self) -> None:
        self._headers = {}
        self._count += 1
        if self._count > MAX_PARTS:
            raise LimitExceeded(f"A form has at most {MAX_PARTS} parts.", param="body")

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _head(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name")
        if kind != b"form-data" or name is None:
            raise InvalidRequest("Each part needs a Content-Disposition of form-data with a name.", param="body")
        self._found.append(
            Part(_text(name), _known(options.get(b"filename")), _known(self._headers.get(b"content-type")))
        )

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._found.append(data[start:end])

    def _end(self) -> None:
        self._ended = True


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _known(raw: bytes | None) -> str | None:
    return None if raw is None else _text(raw)
