"""Files that callers upload and that batches write: their ids, names and limits. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tasks.errors import InvalidRequest, TaskError

INPUT, OUTPUT = "batch", "batch_output"
"""What files are for: those that batches read, and those that they write."""

DOCUMENT, ROWS = "backfill", "backfill_output"
"""The same of backfills: documents and manifests, and what came of them."""

SHOWN = "file-"
"""Begins the id of a file as callers see it."""

FOLDER = "files"
"""Where their contents are in the blob store; parts of batches have folders of their own."""

KEPT_S = 30 * 86_400
"""How long a file is kept that says nothing of it."""

LEAST_KEPT_S, MOST_KEPT_S = 3_600, 30 * 86_400

DEFAULT_NAME = "upload.jsonl"
_LONGEST_NAME = 255
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class FileNotFound(TaskError):
    """No such file, or it has expired."""

    code = "file_not_found"


class FileInUse(TaskError):
    """A batch that has not ended reads this file; cancel the batch first, or wait for its end."""

    code = "file_in_use"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as its row tells it; `blob` is the key of its content."""

    id: UUID
    caller: str
    filename: str
    purpose: str
    bytes: int
    blob: str
    created_at: datetime
    expires_at: datetime | None


def shown_id(prefix: str, id_: UUID) -> str:
    """An id as callers see it: `file-…`, `batch_…`."""
    return f"{prefix}{id_.hex}"


def parsed_id(prefix: str, text: str) -> UUID | None:
    """The id that callers name; None for what is none of ours."""
    found = text.removeprefix(prefix)
    return UUID(found) if text.startswith(prefix) and re.fullmatch("[0-9a-f]{32}", found) else None


def shown_name(name: str) -> str:
    """A file's name as it is shown: the last part of a path, without characters that would garble a line or a header.

    It names nothing in the store, so nothing that it holds can lead anywhere.
    """
    last = re.split(r"[/\\]", name)[-1].strip()
    clean = _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", last)[:_LONGEST_NAME]
    return DEFAULT_NAME if clean in {"", ".", ".."} else clean


def kept_s(seconds: int, param: str) -> int:
    """For how long a caller wants a file kept. Raises InvalidRequest."""
    if LEAST_KEPT_S <= seconds <= MOST_KEPT_S:
        return seconds
    raise InvalidRequest(f"{param!r} must be from {LEAST_KEPT_S} to {MOST_KEPT_S} (30 days).", param=param)
