"""The files of a batch: its parts' lines put together, and the lines that no part has."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from api.feeding import shaping
from api.feeding.reading import rules_of
from api.feeding.services import Feeding
from api.feeding.shaping import Stop
from api.sinks import Sink, sinks
from tasks.batches import PREFIX, Batch, Part
from tasks.files import FOLDER, OUTPUT, StoredFile, shown_id
from tasks.lines import read_line, split
from tasks.prepare import job_id
from tasks.store import batch_parts as parts


async def joined(it: Feeding, batch: Batch) -> tuple[StoredFile | None, StoredFile | None]:
    """The output file and the error file, in the order of the lines; None for one that would be empty.

    Their content is in the store; their rows are to be written.
    """
    blobs = await it.database.run(parts.part_blobs, batch.id)
    async with sinks(it.blobs, FOLDER, FOLDER) as (output, errors):
        await asyncio.to_thread(output.copy, [key for key, _ in blobs if key is not None])
        await asyncio.to_thread(errors.copy, [key for _, key in blobs if key is not None])
    return _file(it, batch, output, "output"), _file(it, batch, errors, "error")


async def rest_of(it: Feeding, batch: Batch, first: Part, blob: str, stop: Stop) -> str | None:
    """The key of a blob of error lines, for all lines from a part on: none of them is done."""
    async with sinks(it.blobs, batch.folder) as (errors,):
        await asyncio.to_thread(_write_rest, it, batch, first, blob, stop, errors)
    return errors.key


def _write_rest(it: Feeding, batch: Batch, first: Part, blob: str, stop: Stop, errors: Sink) -> None:
    rules = rules_of(batch, it.settings)
    chunks = it.blobs.chunks(blob, first.start)
    for raw in split(chunks, rules.longest_line, number=first.first_line, start=first.start):
        if not raw.blank:
            errors.write(shaping.stopped(batch, read_line(raw, rules), stop).data)


def _file(it: Feeding, batch: Batch, sink: Sink, kind: str) -> StoredFile | None:
    if sink.key is None:
        return None
    now = it.now()
    return StoredFile(
        id=job_id(now.timestamp()),
        caller=batch.caller,
        filename=f"{shown_id(PREFIX, batch.id)}_{kind}.jsonl",
        purpose=OUTPUT,
        bytes=sink.size,
        blob=sink.key,
        created_at=now,
        expires_at=now + timedelta(seconds=batch.output_expires_s),
    )
