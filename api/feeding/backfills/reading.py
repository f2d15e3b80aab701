"""Reading a document, and making an item of it that its model can read."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import Sequence
from typing import Any

from api.feeding.services import Feeding
from catalog.schema import InputKind
from tasks.backfills.backfill import Backfill, Document
from tasks.backfills.sources import Sources
from tasks.errors import LimitExceeded, TaskError
from tasks.files import SHOWN, FileNotFound, parsed_id
from tasks.store import files

_SIGNATURES = {
    b"\x89PNG": "image",
    b"\xff\xd8\xff": "image",
    b"GIF8": "image",
    b"II*\0": "image",
    b"MM\0*": "image",
    b"fLaC": "audio",
    b"OggS": "audio",
    b"ID3": "audio",
}


class UnsupportedDocument(TaskError):
    """The model cannot read what this document is."""

    code = "unsupported_document"


class UnreadableText(TaskError):
    """The document is no text in UTF-8; parse it first, or convert it."""

    code = "unreadable_text"


async def content_of(it: Feeding, sources: Sources, backfill: Backfill, document: Document) -> bytes:
    """The whole of a document. Raises TaskError where there is none, or too much; OSError when it cannot be had now."""
    limit = it.settings.max_body_bytes
    if not document.source.startswith(SHOWN):
        return await asyncio.to_thread(sources.read, document.source, limit)
    file = await it.database.run(files.get, parsed_id(SHOWN, document.source), backfill.caller)
    if file.bytes > limit:
        raise LimitExceeded(f"The document is larger than {limit} bytes, the limit ROOST_MAX_BODY_BYTES.")
    try:
        return await asyncio.to_thread(lambda: b"".join(it.blobs.chunks(file.blob)))
    except FileNotFoundError:
        raise FileNotFound from None


def text_of(data: bytes) -> str:
    """A document that is a text. Raises UnreadableText."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableText from None
    if "\0" in text:
        raise UnreadableText
    return text


def item_of(name: str, data: bytes, inputs: Sequence[InputKind]) -> dict[str, Any]:
    """A document as an item of a model that reads these inputs. Raises UnsupportedDocument or UnreadableText."""
    kind = _kind(name, data)
    if "document" in inputs and kind != "audio":
        return {"document": {"data": data, "name": name.rpartition("/")[2][-200:]}}
    if kind == "image" and "image" in inputs:
        return {"images": [{"data": data}]}
    if kind == "audio" and "audio" in inputs:
        return {"audio": {"data": data}}
    if "text" in inputs and kind not in ("image", "audio", "pdf"):
        return {"text": text_of(data)}
    raise UnsupportedDocument(f"The model reads {', '.join(inputs)}, and this is {kind}.")


def item_at(name: str, url: str, inputs: Sequence[InputKind]) -> dict[str, Any]:
    """A document that the door fetches, as an item. Raises UnsupportedDocument for models that read texts alone."""
    kind = _kind(name, b"")
    if "document" in inputs:
        return {"document": {"url": url, "name": name.rpartition("/")[2][-200:]}}
    if "audio" in inputs and ("image" not in inputs or kind == "audio"):
        return {"audio": {"url": url}}
    if "image" in inputs:
        return {"images": [{"url": url}]}
    raise UnsupportedDocument("A URL is for models that read documents, images or audio; upload the text.")


def _kind(name: str, data: bytes) -> str:
    for signature, kind in _SIGNATURES.items():
        if data.startswith(signature):
            return kind
    if data.startswith(b"RIFF"):
        return "image" if data[8:12] == b"WEBP" else "audio"
    if b"%PDF-" in data[:1024]:
        return "pdf"
    guessed = (mimetypes.guess_type(name)[0] or "").partition("/")[0]
    return guessed if guessed in ("image", "audio") else "a text or another document"
