"""Batches and their input files, as callers leave them for the feeder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from api.feeding.services import Feeding
from tasks.batches import Batch
from tasks.blobs import new_key
from tasks.files import StoredFile
from tasks.prepare import CALLER, job_id
from tasks.store import batches, files


async def stored_file(it: Feeding, blob: str, *, size: int, expires_at: datetime | None = None) -> StoredFile:
    """The row of a file whose content is in the store under this key."""
    now = datetime.now(UTC)
    file = StoredFile(job_id(now.timestamp()), CALLER, "in", "batch", size, blob, now, expires_at)
    await it.database.run(files.put, file)
    return file


async def batch_of(it: Feeding, content: bytes, *, window_s: float = 3600.0, endpoint: str = "/v1/embeddings") -> Batch:
    """A batch, of embeddings unless told otherwise, that nobody has looked at, with this input file."""
    with it.blobs.writing(key := new_key("files")) as out:
        out.write(content)
    file = await stored_file(it, key, size=len(content))
    new = batches.NewBatch(
        id=job_id(file.created_at.timestamp()),
        caller=CALLER,
        endpoint=endpoint,
        completion_window="1h",
        input_file=file.id,
        labels=None,
        output_expires_s=3600,
        folder=new_key("batches"),
        created_at=file.created_at,
        expires_at=file.created_at + timedelta(seconds=window_s),
    )
    return await it.database.run(batches.create, new)
