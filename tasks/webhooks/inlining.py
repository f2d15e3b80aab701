"""Small results of jobs that go along with the event of their end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from tasks.contents import AsyncContents
from tasks.db import AsyncDatabase
from tasks.errors import BlobMissing, JobNotFound, NotFinished, ResultExpired, ResultNotStored
from tasks.rendering import Encoding, json_rows
from tasks.results import unpack_rows
from tasks.store import read
from tasks.webhooks.events import MOST_INLINE_BYTES

_GONE = (BlobMissing, JobNotFound, NotFinished, ResultExpired, ResultNotStored)


@dataclass(frozen=True, slots=True)
class Results:
    """Reads them. What is gone or too large is left out: the event says where results are."""

    database: AsyncDatabase
    contents: AsyncContents

    async def __call__(self, id_: UUID, caller: str) -> Any:
        """The job's result as JSON takes it; None if it is too large or not there. Raises StoreUnavailable."""
        try:
            found = await self.database.run(read.result, id_, caller)
            stored = found.rows if found.blob is None else await self._beginning(found.blob)
        except _GONE:
            return None
        if stored is None or len(stored) > MOST_INLINE_BYTES:
            return None
        return await asyncio.to_thread(_written, stored)

    async def _beginning(self, blob: str) -> bytes | None:
        """As much of a blob as shows whether it is too large. It may have any size, and its store may be away."""
        if self.contents.contents.most >= MOST_INLINE_BYTES:  # only what is larger is a blob
            return None
        return await self.contents.get(blob, MOST_INLINE_BYTES + 1)


def _written(stored: bytes) -> Any:
    items = orjson.dumps(json_rows(unpack_rows(stored), Encoding.FLOAT), option=orjson.OPT_SERIALIZE_NUMPY)
    return None if len(items) > MOST_INLINE_BYTES else {"items": orjson.Fragment(items)}
