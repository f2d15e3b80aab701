"""Bounds on what comes before and between bodies: a request's head, the sizes of its chunks, its trailer.

httptools, which uvicorn reads requests with, keeps all of them in memory and caps none. A head over the bounds gets 431
and its connection is closed. Servers name this class as their `http`.
"""

from __future__ import annotations

from http import HTTPStatus

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100

_TOO_LARGE = orjson.dumps(
    {
        "error": {
            "code": "head_too_large",
            "message": f"A request's head holds at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers; send fewer.",
            "param": None,
            "retryable": False,
        }
    }
)


class _HeadTooLarge(Exception):
    """Ends the parser's run; uvicorn takes it for a request that is not valid."""


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol with bounded heads.

    Bytes are counted where they come in, since the parser tells of a header only when it has the whole of it, and the
    count starts anew with each sign of progress: a head's end, a piece of a body, a request's end.
    """

    _unfinished = 0
    _moved = False
    _refused = False

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless it has had too much already without an end of anything."""
        if self._refused:
            return
        self._moved = False
        super().data_received(data)
        self._unfinished = 0 if self._moved else self._unfinished + len(data)
        if self._unfinished > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One whole header, of a head or of a trailer."""
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refuse()
            raise _HeadTooLarge

    def on_headers_complete(self) -> None:
        """The whole head, which may have come at once."""
        self._moved = True
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD_BYTES:
            self._refuse()
            raise _HeadTooLarge
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of a request."""
        self._moved = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The answer to what the parser refuses; one that was refused here has its answer."""
        if not self._refused:
            super().send_400_response(msg)

    def _refuse(self) -> None:
        self._refused = True
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(_TOO_LARGE)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + _TOO_LARGE)
        self.transport.close()
