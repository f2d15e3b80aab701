"""One document of a backfill: its steps become jobs, one after the other, and the last one's results become rows.

All of it may be done again after a death: a step's job has always the same id, so it is found and not run twice, and
nothing of the document is in any file until the one transaction that ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from api.answers import End
from api.backfill_chain import Chain
from api.compat.calls import ended
from api.compat.dialect import UNEXPECTED
from api.compat.failures import JobFailed, first_fault
from api.door import admit
from api.feeding.backfills.reading import UnsupportedDocument, content_of, item_at, item_of, text_of
from api.feeding.backfills.rows import Piece, after, columns_of, rows_of, written
from api.feeding.endings import Progress
from api.feeding.fetching import UntilHalt
from api.feeding.halt import Halt
from api.feeding.jobs import BUSY, RETRY_S, Jobs
from api.feeding.services import Feeding
from api.sinks import sinks
from catalog.errors import RoostError
from catalog.terms import Lane
from tasks.backfills.backfill import PREFIX, TAG, URL, Backfill, Document, Done, step_job
from tasks.backfills.chunking import blocks_of, chunks, parsed_blocks
from tasks.backfills.plan import StepName, StepRequest
from tasks.backfills.sources import Sources
from tasks.errors import as_data
from tasks.files import SHOWN, FileNotFound, parsed_id, shown_id
from tasks.jobs import State
from tasks.messages import Submission
from tasks.store import backfill_leases as leases
from tasks.store import batch_parts, files

log = logging.getLogger(__name__)

GROUP_ITEMS, GROUP_CHARS = 64, 128 * 1024
"""Chunks in one job, and their characters unless it is one chunk."""

GROUPS_AT_ONCE = 4
"""Jobs of one document that are under way at once."""

LARGE = 4 * 2**20
"""Documents above this size are taken in a few at a time, over all backfills of the feeder."""

_KEPT_S = 30 * 86_400
"""Longer than any outage: a document frees its jobs itself, once it has read them."""

_LOST = {"code": "job_not_found", "message": "Its job is gone: somebody deleted it. Resume the backfill to try again."}


_UNEXPECTED = {"code": UNEXPECTED.code, "message": UNEXPECTED.message}


class Halted(Exception):
    """The work ends before the document is done."""


@dataclass(slots=True)
class DocumentRun:
    """The work on one document. `again`: some of its steps may have jobs already."""

    it: Feeding
    backfill: Backfill
    feeder: str
    document: Document
    chain: Chain
    sources: Sources
    halt: Halt
    again: bool
    jobs: list[UUID] = field(default_factory=list)
    place: int = 0
    _door: Feeding = field(init=False)

    def __post_init__(self) -> None:
        self._door = replace(self.it, fetching=UntilHalt(self.it.fetching, self.halt))

    async def run(self) -> Done | None:
        """Do it; None when the work is halted first. Raises LeaseLost, StoreUnavailable or OSError."""
        try:
            done = await self._done()
        except Halted:
            return None
        await self.it.database.run(leases.finish_document, self.backfill.id, self.feeder, done, self.jobs)
        return done

    async def _done(self) -> Done:
        try:
            pieces = [Piece()]
            for place, step in enumerate(self.chain.names):
                self.place = place
                pieces = await (self._chunked(pieces) if step is StepName.CHUNK else self._worked(step, pieces))
            rows = list(rows_of(self.document, self.chain.names, pieces))
            async with sinks(self.it.blobs, self.backfill.folder) as (sink,):
                if rows:
                    await asyncio.to_thread(lambda: sink.write(written(rows)))
            return Done(self.document.number, len(rows), columns_of(rows), sink.key)
        except (Halted, OSError, *BUSY):
            raise
        except RoostError as error:
            return self._failed(as_data(error))
        except Exception:
            # Whatever it is, it must not end all other documents with this one.
            log.exception(
                "document %d of backfill %s could not be worked through", self.document.number, self.backfill.id
            )
            return self._failed(_UNEXPECTED)

    def _failed(self, error: Any) -> Done:
        step = self.chain.names[self.place].value
        told = {"step": step, "place": self.place, "code": error["code"], "message": error["message"]}
        return Done(self.document.number, error=told)

    async def _chunked(self, pieces: Sequence[Piece]) -> list[Piece]:
        (piece,) = pieces
        if self.place == 0:
            if self.document.source.startswith(URL):
                raise UnsupportedDocument("A URL is for models that read documents, images or audio; upload the text.")
            text = text_of(await self._content())
            blocks = await asyncio.to_thread(blocks_of, text)
        elif piece.data is not None:
            blocks = await asyncio.to_thread(parsed_blocks, piece.data)
        else:
            blocks = blocks_of(piece.text or "")
        cut, count = self.chain.cut(self.it, self.place)
        found = await asyncio.to_thread(lambda: list(chunks(blocks, cut, count)))
        return [Piece(one.text, place, one.page, one.headings) for place, one in enumerate(found)]

    async def _worked(self, step: StepName, pieces: Sequence[Piece]) -> list[Piece]:
        if self.place == 0:
            rows = await self._results([self._whole])
        else:
            groups = _groups([piece.text or "" for piece in pieces])
            rows = await self._results([self._of_texts(texts) for texts in groups])
        textual = self.chain.textual(self.place)
        return await asyncio.to_thread(
            lambda: [after(step, piece, row, textual=textual) for piece, row in zip(pieces, rows, strict=True)]
        )

    async def _content(self) -> bytes:
        while self.halt.stop is None:
            try:
                return await content_of(self.it, self.sources, self.backfill, self.document)
            except OSError as error:
                log.warning("document %d of backfill %s waits: %s", self.document.number, self.backfill.id, error)
                await self.halt.sleep(RETRY_S)
        raise Halted

    async def _whole(self) -> Submission:
        async with self.it.large if await self._size() > LARGE else nullcontext():
            return await self._admitted([await self._item()], large=True)

    async def _size(self) -> int:
        if not self.document.source.startswith(SHOWN):
            return self.document.size
        try:
            id_ = parsed_id(SHOWN, self.document.source)
            return (await self.it.database.run(files.get, id_, self.backfill.caller)).bytes
        except FileNotFound:
            return 0

    async def _item(self) -> dict[str, Any]:
        name, source = self.document.name, self.document.source
        if source.startswith(URL):
            return item_at(name, source.removeprefix(URL), self.chain.inputs)
        item = await asyncio.to_thread(item_of, name, await self._content(), self.chain.inputs)
        return {"text": self._step.said(item["text"])} if "text" in item else item

    @property
    def _step(self) -> StepRequest:
        return self.chain.steps[self.place]

    def _of_texts(self, texts: Sequence[str]) -> Callable[[], Awaitable[Submission]]:
        said = self._step.said
        return lambda: self._admitted([{"text": said(text)} for text in texts], large=False)

    async def _admitted(self, items: Sequence[dict[str, Any]], *, large: bool) -> Submission:
        tag = TAG + shown_id(PREFIX, self.backfill.id)
        raw = {**self.chain.asks(self.place), "items": list(items), "lane": Lane.BULK.value, "tags": [tag]}
        job = await Jobs(self.it, self.halt).admitted(
            lambda: admit(self._door, raw, caller=self.backfill.caller, large=large)
        )
        if job is None:
            raise Halted
        return replace(job, retention_s=_KEPT_S)

    async def _results(self, groups: Sequence[Callable[[], Awaitable[Submission]]]) -> list[dict[str, Any]]:
        """The rows of all these jobs; those that an earlier feeder began are not begun again. Raises as jobs fail."""
        ids = [step_job(self.backfill, self.document.number, self.place, number) for number in range(len(groups))]
        self.jobs += ids
        known = await self.it.database.run(batch_parts.job_states, ids) if self.again else {}
        rows: list[dict[str, Any]] = []
        for start in range(0, len(ids), GROUPS_AT_ONCE):
            some = ids[start : start + GROUPS_AT_ONCE]
            await self._ended(dict(zip(some, groups[start:], strict=False)), known)
            for id_ in some:
                rows += await self._rows(id_)
        return rows

    async def _ended(
        self, groups: Mapping[UUID, Callable[[], Awaitable[Submission]]], known: Mapping[UUID, object]
    ) -> None:
        """Return once these jobs have ended, or are gone: those that are not known are begun now."""
        with self.it.endings.watching(list(groups), Progress()) as watch:
            new = [self._begin(id_, group) for id_, group in groups.items() if id_ not in known]
            for begun in await asyncio.gather(*new, return_exceptions=True):
                if isinstance(begun, BaseException):
                    raise begun
            # Those that were there already may have ended before we listened.
            look = len(new) < len(groups)
            while watch.left:
                if not look and self.halt.stop is None:
                    await watch.wait(self.halt)
                look = False
                left = list(watch.left)
                states = await self.it.database.run(batch_parts.job_states, left)
                watch.drop([id_ for id_ in left if id_ not in states or states[id_][0].final])
                if watch.left and self.halt.stop is not None:
                    for id_ in await self.it.database.run(batch_parts.cancel_jobs, list(watch.left)):
                        self.it.submitter.forget(id_)
                        await self.it.limiter.release(id_, self.backfill.caller)

    async def _begin(self, id_: UUID, group: Callable[[], Awaitable[Submission]]) -> None:
        try:
            job = replace(await group(), id=id_)
        except (Halted, TimeoutError):
            return
        jobs = Jobs(self.it, self.halt)
        if await jobs.allowed(job):
            await jobs.put(job, again=self.again)

    async def _rows(self, id_: UUID) -> list[dict[str, Any]]:
        found = (await self.it.database.run(batch_parts.ended_jobs, [id_])).get(id_)
        if self.halt.stop is not None and (found is None or found.job.state is not State.SUCCEEDED):
            raise Halted
        if found is None:
            raise JobFailed.of(_LOST)
        data = found.rows if found.blob is None else await self.it.contents.get(found.blob)
        end = await asyncio.to_thread(ended, self.it, End(found.job, data))
        if (fault := first_fault(end.rows)) is not None:
            raise JobFailed.of({**fault, "param": None})
        return end.rows


def _groups(texts: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    chars = 0
    for text in texts:
        if not groups or len(groups[-1]) >= GROUP_ITEMS or chars + len(text) > GROUP_CHARS:
            groups.append([])
            chars = 0
        groups[-1].append(text)
        chars += len(text)
    return groups
