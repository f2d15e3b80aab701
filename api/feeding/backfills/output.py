"""The files of a backfill: the rows of all documents put together, and the report of those that failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import timedelta

from api.feeding.services import Feeding
from api.media import dumps
from api.sinks import Sink, sinks
from tasks.backfills.backfill import PREFIX, URL, Backfill, DocumentState, Standing
from tasks.backfills.plan import Format
from tasks.blobs import new_key
from tasks.files import FOLDER, KEPT_S, ROWS, StoredFile, shown_id
from tasks.prepare import job_id
from tasks.store import backfill_leases as leases
from tasks.store import backfills as store

_PAGE = 1000


async def output_of(it: Feeding, backfill: Backfill, form: Format) -> StoredFile | None:
    """All rows in the order of their documents; None where there are none. Its row is to be written."""
    if form is Format.PARQUET:
        return await _parquet(it, backfill)
    async with sinks(it.blobs, FOLDER) as (sink,):
        async for keys in _outputs(it, backfill):
            await asyncio.to_thread(sink.copy, keys)
    return _file(it, backfill, sink.key, sink.size, f"output.{form.value}")


async def report_of(it: Feeding, backfill: Backfill) -> StoredFile | None:
    """Which documents failed, in which step and why; None where none did. Its row is to be written."""
    async with sinks(it.blobs, FOLDER) as (sink,):
        after = 0
        while page := await it.database.run(
            store.documents, backfill.id, state=DocumentState.FAILED, after=after, limit=_PAGE
        ):
            await asyncio.to_thread(_report, sink, page)
            after = page[-1].number
    return _file(it, backfill, sink.key, sink.size, "failures.jsonl")


async def _parquet(it: Feeding, backfill: Backfill) -> StoredFile | None:
    # Here, because it is an extra: who asks for no Parquet needs none of it.
    from api.feeding.backfills.parquet import Table

    columns = await it.database.run(leases.columns_of, backfill.id)
    if not columns:
        return None
    key = new_key(FOLDER)
    with closing(Table(it.blobs, key, columns)) as table:
        async for keys in _outputs(it, backfill):
            await asyncio.to_thread(table.add, keys)
        size = await asyncio.to_thread(table.finish)
    return _file(it, backfill, key, size, "output.parquet")


async def _outputs(it: Feeding, backfill: Backfill) -> AsyncIterator[list[str]]:
    after = 0
    while page := await it.database.run(leases.outputs, backfill.id, after, _PAGE):
        yield [key for _, key in page]
        after = page[-1][0]


def _report(sink: Sink, page: list[Standing]) -> None:
    sink.write(b"".join(dumps(one) + b"\n" for one in _failures(page)))


def _failures(page: list[Standing]) -> Iterator[dict[str, object]]:
    for one in page:
        error = one.error or {}
        told = {name: error.get(name) for name in ("step", "code", "message")}
        yield {"document": one.name, "source": one.source.removeprefix(URL), **told}


def _file(it: Feeding, backfill: Backfill, key: str | None, size: int, kind: str) -> StoredFile | None:
    if key is None:
        return None
    now = it.now()
    return StoredFile(
        id=job_id(now.timestamp()),
        caller=backfill.caller,
        filename=f"{shown_id(PREFIX, backfill.id)}_{kind}",
        purpose=ROWS,
        bytes=size,
        blob=key,
        created_at=now,
        expires_at=now + timedelta(seconds=KEPT_S),
    )
