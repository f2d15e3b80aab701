"""One backfill, from where it stands to its end. Whoever takes it up after a death goes on here."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from api.backfill_chain import Chain, chain_of
from api.feeding.backfills.document import DocumentRun
from api.feeding.backfills.listing import Listing
from api.feeding.backfills.output import output_of, report_of
from api.feeding.halt import Halt
from api.feeding.leased import LeasedRun
from api.feeding.services import Feeding
from api.feeding.shaping import Stop
from api.feeding.window import Window
from catalog.errors import RoostError
from tasks.backfills.backfill import PREFIX, TAG, Backfill, Document, Done, Status, Tally, final_status
from tasks.backfills.plan import BackfillRequest, parse_backfill
from tasks.backfills.sources import Sources
from tasks.files import SHOWN, FileNotFound, StoredFile, parsed_id, shown_id
from tasks.lines import MOST_FAULTS, Fault
from tasks.store import backfill_leases as leases
from tasks.store import files
from tasks.store.leases import LeaseLost
from tasks.webhooks.bell import ring

log = logging.getLogger(__name__)

PAGE = 256
"""Documents that are read from the database at once."""

SKIPPED = 20_000
"""Documents that are compared with those of an earlier backfill at once."""

EARLIER = 16
"""Backfills of the same name that are looked through for unchanged documents, the newest first."""

_NONE = Fault("all_documents_failed", "No document succeeded; the report says why of each.")
_EMPTY = Fault("no_documents", "There are no documents in the source.", param="source")
_LOST = Fault(
    "rows_missing",
    "Rows of documents are gone from the blob store. Do all again: a new one, with skip_unchanged false.",
)
_GONE = Fault("manifest_missing", "The content of the manifest is gone.", param="source.manifest")


class Broken(Exception):
    """The backfill cannot be worked through; says why."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults[0].message)
        self.faults = faults


@dataclass(slots=True)
class BackfillRun(LeasedRun):
    """The work on a backfill under the lease that `feeder` names."""

    it: Feeding
    backfill: Backfill
    feeder: str
    window: Window
    halt: Halt = field(default_factory=Halt)
    done: Tally = field(default_factory=Tally)
    paused: bool = False
    over: bool = False
    begun: bool = False

    @property
    def id(self) -> UUID:
        """Of the backfill."""
        return self.backfill.id

    @property
    def tag(self) -> str:
        """By which its jobs are found."""
        return TAG + shown_id(PREFIX, self.id)

    async def fail(self, fault: Fault) -> None:
        """End it without files. Raises LeaseLost."""
        await self._end(Status.FAILED, await self._tally(), [fault])

    async def _renew(self) -> None:
        # Until what was done before has been counted there is nothing to tell.
        done = self.done if self.begun else self._told()
        status = await self.it.database.run(leases.tend, self.id, self.feeder, self.it.settings.job_lease_s, done)
        self.paused = status is Status.PAUSED
        if status is Status.CANCELLING:
            self.halt.set(Stop.CANCELLED)
            for id_ in await self.it.database.run(leases.cancel_jobs, self.backfill.caller, self.tag):
                self.it.submitter.forget(id_)
                await self.it.limiter.release(id_, self.backfill.caller)

    def _told(self) -> Tally:
        it = self.backfill
        return Tally(it.completed, it.failed, it.skipped, it.rows)

    async def _tally(self) -> Tally:
        return await self.it.database.run(leases.tally, self.id)

    async def _work(self) -> None:
        try:
            await self._worked()
        except Broken as error:
            await self._end(Status.FAILED, await self._tally(), error.faults)

    async def _worked(self) -> None:
        try:
            asked = parse_backfill(self.backfill.plan)
        except RoostError as error:  # taken in by a version that let more through
            raise Broken([Fault(error.code, error.message, param=error.param)]) from None
        sources = Sources(self.it.settings.backfill_sources)
        if self.backfill.status is Status.CANCELLING:
            self.halt.set(Stop.CANCELLED)
        # Of one that was taken over, or up again in the same round, documents may have jobs.
        again = self.backfill.in_progress_at is not None
        if not again and not await self._validated(asked, sources):
            return
        self.done, self.begun = await self._tally(), True
        if self.backfill.finalizing_at is None and self.halt.stop is None:
            await self._documents(await self._chain(asked), sources, again=again)
        if self.paused and self.halt.stop is None:
            # What the last documents came to is told before nobody tells it any more.
            await self._renew()
            await self._leave()
            return
        await self._finish(asked)

    async def _chain(self, asked: BackfillRequest) -> Chain:
        try:
            return await chain_of(self.it, asked.steps)
        except RoostError as error:
            if error.retryable:
                raise
            raise Broken([Fault(error.code, error.message, param=error.param)]) from None

    async def _validated(self, asked: BackfillRequest, sources: Sources) -> bool:
        """List the documents. Whether there is work to do now; when not, it was ended or left."""
        if self.halt.stop is None:
            await self._chain(asked)
            await self._listed(asked, sources)
        if self.halt.stop is not None:
            await self._end(Status.CANCELLED, Tally())
            return False
        self.backfill = await self.it.database.run(leases.begin, self.id, self.feeder)
        return True

    async def _listed(self, asked: BackfillRequest, sources: Sources) -> None:
        listing = Listing(asked.source, sources, self.it.blobs, await self._manifest(asked))
        await self.it.database.run(leases.clear, self.id, self.feeder)
        faults: list[Fault] = []
        count = last = 0
        while self.halt.stop is None and len(faults) < MOST_FAULTS and (page := await self._page(listing)):
            faults += [one for one in page if isinstance(one, Fault)]
            found = [one for one in page if isinstance(one, Document)]
            count, last = count + len(found), max((one.number for one in found), default=last)
            if count > self.it.settings.max_batch_lines:
                said = f"There are more documents than {self.it.settings.max_batch_lines}, ROOST_MAX_BATCH_LINES."
                raise Broken([Fault("too_many_documents", said, param="source")])
            await self.it.database.run(leases.add, self.id, self.feeder, found)
        if self.halt.stop is not None:
            return
        faults += [
            Fault("duplicate_document", f"Documents {first} and {last} are both called {name[:100]!r}.", last, "id")
            for name, first, last in await self.it.database.run(leases.twice, self.id, MOST_FAULTS)
        ]
        if faults or not count:
            raise Broken(faults[:MOST_FAULTS] or [_EMPTY])
        if asked.name is not None and asked.skip_unchanged:
            await self._skipped(last)

    async def _skipped(self, last: int) -> None:
        """Take over what is unchanged, some documents at a time, for a statement may not take long."""
        for other in await self.it.database.run(leases.earlier, self.id, EARLIER):
            for first in range(1, last + 1, SKIPPED):
                await self.it.database.run(leases.skip, self.id, self.feeder, other, first, first + SKIPPED - 1)

    async def _page(self, listing: Listing) -> list[Document | Fault]:
        try:
            return await asyncio.to_thread(listing.next)
        except FileNotFoundError:
            raise Broken([_GONE]) from None
        except RoostError as error:
            raise Broken([Fault(error.code, error.message, param="source.path")]) from None

    async def _manifest(self, asked: BackfillRequest) -> str | None:
        if asked.source.manifest is None:
            return None
        try:
            id_ = parsed_id(SHOWN, asked.source.manifest)
            return (await self.it.database.run(files.get, id_, self.backfill.caller)).blob
        except FileNotFound:
            raise Broken([_GONE]) from None

    async def _documents(self, chain: Chain, sources: Sources, *, again: bool) -> None:
        """Work through all documents that are not done, some at once, until the work must end or pause."""
        running: dict[asyncio.Task[Done | None], Document] = {}
        waiting: deque[Document] = deque()
        after, more = 0, True
        try:
            while True:
                if more and not waiting:
                    page = await self.it.database.run(leases.waiting, self.id, after, PAGE)
                    waiting.extend(page)
                    more = len(page) == PAGE
                    after = page[-1].number if page else after
                while waiting and self._may_begin(len(running)):
                    run = DocumentRun(self.it, self.backfill, self.feeder, waiting[0], chain, sources, self.halt, again)
                    running[asyncio.create_task(run.run(), name=f"document of {self.id}")] = waiting.popleft()
                if not running and not (more and not waiting and not self._stops()):
                    return
                if running:
                    ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in ended:
                        self._ended(task, running)
        finally:
            for task in running:
                task.cancel()
            self.window.give(len(running))
            await asyncio.gather(*running, return_exceptions=True)

    def _stops(self) -> bool:
        return self.paused or self.halt.stop is not None

    def _may_begin(self, running: int) -> bool:
        if self._stops() or running >= self.it.settings.backfill_in_flight:
            return False
        return self.window.take(1, anyhow=not running)

    def _ended(self, task: asyncio.Task[Done | None], running: dict[asyncio.Task[Done | None], Document]) -> None:
        del running[task]
        self.window.give(1)
        done = task.result()
        if done is not None:
            self.done += done.tally

    async def _finish(self, asked: BackfillRequest) -> None:
        """Put the documents' rows together into files."""
        try:
            self.backfill = await self.it.database.run(leases.finalize, self.id, self.feeder)
        except LeaseLost:
            # Paused just now, or another's: either way what is left is for whoever takes it next.
            await self._leave()
            return
        tally = await self._tally()
        try:
            output = await output_of(self.it, self.backfill, asked.output.format)
        except FileNotFoundError:
            # They will not come back by waiting.
            log.exception("backfill %s: rows are gone", self.id)
            raise Broken([_LOST]) from None
        report = await report_of(self.it, self.backfill)
        status = final_status(self.backfill.status, tally)
        await self._end(status, tally, [_NONE] if status is Status.FAILED else (), output, report)

    async def _leave(self) -> None:
        self.over = True
        await self.it.database.run(leases.release, self.feeder)

    async def _end(
        self,
        status: Status,
        tally: Tally,
        faults: Sequence[Fault] = (),
        output: StoredFile | None = None,
        report: StoredFile | None = None,
    ) -> None:
        self.over = True
        await self.it.database.run(
            leases.end,
            self.id,
            self.feeder,
            status,
            tally,
            self.tag,
            faults=faults,
            output=output,
            report=report,
        )
        await ring(self.it.redis)
