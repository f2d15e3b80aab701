"""Taking a file in as it comes, in OpenAI's form or in the peer's: nothing of it is kept in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.requests import Request

from api.body import BodyTooLarge, check_length, pieces
from api.errors import UnsupportedMediaType
from api.multipart import Part, parts
from api.sinks import Sink, sinks
from catalog.errors import suggestion
from tasks.blobs import Blobs
from tasks.errors import InvalidRequest, StoreUnavailable
from tasks.files import DEFAULT_NAME, DOCUMENT, FOLDER, INPUT, KEPT_S, kept_s, shown_name

log = logging.getLogger(__name__)

RAW_TYPES = ("application/jsonl", "application/x-ndjson", "application/octet-stream", "text/plain")
"""The Content-Types of a body that is the file itself."""

FORM_BYTES = 64 * 1024
"""What a form may have besides its file."""

_WRITE_BYTES = 512 * 1024
_FIELDS = ("file", "purpose", "expires_after[anchor]", "expires_after[seconds]")
_LONGEST_VALUE = 256


@dataclass(slots=True)
class Upload:
    """What came with a file, and where its content is now."""

    filename: str = DEFAULT_NAME
    fields: dict[str, str] = field(default_factory=dict)
    seen_file: bool = False
    key: str = ""
    bytes: int = 0

    def kept_s(self) -> int:
        """For how many seconds it is kept. Raises InvalidRequest."""
        anchor, seconds = (self.fields.get(f"expires_after[{name}]") for name in ("anchor", "seconds"))
        if anchor is None and seconds is None:
            return KEPT_S
        if anchor != "created_at":
            raise InvalidRequest("'expires_after.anchor' must be 'created_at'.", param="expires_after.anchor")
        if seconds is None or not (seconds.isascii() and seconds.isdecimal()):
            raise InvalidRequest("'expires_after.seconds' must be a whole number.", param="expires_after.seconds")
        return kept_s(int(seconds), "expires_after.seconds")

    def check(self) -> None:
        """Refuse what is missing or not taken. Raises InvalidRequest."""
        if not self.seen_file:
            raise InvalidRequest("'file' is missing.", param="file")
        purpose = self.fields.get("purpose")
        if purpose not in (INPUT, DOCUMENT):
            known = f"must be {INPUT!r} or {DOCUMENT!r}; files for other purposes are not kept here"
            said = "is missing" if purpose is None else known
            raise InvalidRequest(f"'purpose' {said}.", param="purpose")
        if not self.bytes:
            raise InvalidRequest("'file' is empty.", param="file")
        self.kept_s()


async def taken_in(request: Request, blobs: Blobs, limit: int) -> Upload:
    """The file of a request, in the store. Raises InvalidRequest, BodyTooLarge, StoreUnavailable, ClientGone."""
    upload = Upload()
    try:
        async with sinks(blobs, FOLDER) as (sink,):
            content = _raw(request, upload, limit) if _is_raw(request) else _form(request, upload, limit)
            await _written(content, sink, limit)
            upload.bytes = sink.size
            upload.check()
    except BodyTooLarge:
        raise _too_large(limit) from None
    except OSError as error:
        log.exception("a file could not be kept")
        raise StoreUnavailable("The store of files cannot be reached; try again later.") from error
    upload.key = sink.key or ""
    return upload


async def _written(content: AsyncIterator[bytes], sink: Sink, limit: int) -> None:
    held = bytearray()
    async for piece in content:
        held += piece
        if sink.size + len(held) > limit:
            raise _too_large(limit)
        if len(held) >= _WRITE_BYTES:
            await asyncio.to_thread(sink.write, bytes(held))
            held.clear()
    if held:
        await asyncio.to_thread(sink.write, bytes(held))


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The file is larger than {limit} bytes, the limit ROOST_MAX_FILE_BYTES of this server; send several files.",
        param="file",
    )


def _is_raw(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in RAW_TYPES:
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnsupportedMediaType("Send the file without a Content-Encoding.", param="Content-Encoding")
        return True
    if kind != "multipart/form-data":
        raise UnsupportedMediaType(
            "Send the file as multipart/form-data, or as the body with Content-Type application/jsonl.",
            param="Content-Type",
        )
    return False


async def _raw(request: Request, upload: Upload, limit: int) -> AsyncIterator[bytes]:
    """The body is the file; the query says what it is."""
    for name, value in request.query_params.multi_items():
        if name == "filename":
            upload.filename = shown_name(value)
        else:
            _note(upload, name, value)
    upload.seen_file = True
    check_length(request.headers, limit)
    async for piece in pieces(request.receive, limit):
        yield piece


async def _form(request: Request, upload: Upload, limit: int) -> AsyncIterator[bytes]:
    """The bytes of the part `file`; the other parts are its fields."""
    for name in request.query_params:
        raise InvalidRequest(f"{name[:100]!r} is in the URL; send it as a field of the form.", param=name[:200])
    part, value = Part(""), b""
    async for one in parts(request, limit + FORM_BYTES):
        if isinstance(one, bytes):
            if part.name == "file":
                yield one
                continue
            value += one
            if len(value) > _LONGEST_VALUE:
                raise InvalidRequest(f"{part.name[:100]!r} is too long.", param=part.name[:100])
            continue
        _close(upload, part, value)
        part, value = one, b""
        if part.name == "file":
            if upload.seen_file:
                raise InvalidRequest("'file' must be given once.", param="file")
            upload.seen_file, upload.filename = True, shown_name(part.filename or DEFAULT_NAME)
    _close(upload, part, value)


def _close(upload: Upload, part: Part, value: bytes) -> None:
    if part.name not in ("", "file"):
        _note(upload, part.name, value.decode("utf-8", "replace"))


def _note(upload: Upload, name: str, value: str) -> None:
    if name not in _FIELDS[1:]:
        raise InvalidRequest(f"Unknown field {name[:100]!r}{suggestion(name, _FIELDS)}", param=name[:100])
    if name in upload.fields:
        raise InvalidRequest(f"{name!r} must be given once.", param=name)
    upload.fields[name] = value
