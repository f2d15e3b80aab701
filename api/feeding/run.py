"""One batch, from where it stands to its end. Whoever takes it up after a death goes on here."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from api.compat.batchable import ENDPOINTS
from api.feeding.endings import Progress
from api.feeding.halt import Halt
from api.feeding.jobs import Pace
from api.feeding.leased import LeasedRun
from api.feeding.outputs import joined, rest_of
from api.feeding.part import PartRun
from api.feeding.reading import rules_of
from api.feeding.services import Feeding
from api.feeding.shaping import Stop
from api.feeding.window import Window
from tasks.batches import Batch, Part, Status, Tally, final_status
from tasks.files import FileNotFound, StoredFile
from tasks.lines import Checked, Fault, Rules, check
from tasks.store import batch_leases as leases
from tasks.store import batch_parts as parts
from tasks.store import files
from tasks.webhooks.bell import ring

log = logging.getLogger(__name__)

PAGE = 64
"""Parts that are read from the database at once."""

_NONE = Fault("all_lines_failed", "No line succeeded; the error file says why of each.")
_GONE = Fault("input_missing", "The content of the input file is gone.", param="input_file_id")


class Broken(Exception):
    """The batch cannot be worked through; says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(slots=True)
class BatchRun(LeasedRun):
    """The work on a batch under the lease that `feeder` names."""

    it: Feeding
    batch: Batch
    feeder: str
    window: Window
    halt: Halt = field(default_factory=Halt)
    pace: Pace = field(default_factory=Pace)
    done: Tally = field(default_factory=Tally)
    live: dict[int, Progress] = field(default_factory=dict)
    over: bool = False

    @property
    def id(self) -> UUID:
        """Of the batch."""
        return self.batch.id

    async def fail(self, fault: Fault) -> None:
        """End the batch without files. Raises LeaseLost."""
        await self._end(Status.FAILED, [fault])

    async def _renew(self) -> None:
        if self.it.now() >= self.batch.expires_at:
            self.halt.set(Stop.EXPIRED)
        status = await self.it.database.run(
            leases.tend, self.batch.id, self.feeder, self.it.settings.job_lease_s, *self._counts()
        )
        if status is Status.CANCELLING:
            self.halt.set(Stop.CANCELLED)

    def _counts(self) -> tuple[int, int]:
        """How many lines have completed and failed: what was told before, until as many have been found again."""
        completed = self.done.completed + sum(part.completed for part in self.live.values())
        failed = self.done.failed + sum(part.failed for part in self.live.values())
        return max((completed, failed), (self.batch.completed, self.batch.failed), key=sum)

    async def _work(self) -> None:
        try:
            if self.batch.in_progress_at is None and not await self._validated():
                return
            self.done = await self.it.database.run(parts.tally, self.batch.id)
            if self.batch.finalizing_at is None:
                await self._parts()
            await self._finish()
        except Broken as error:
            await self.fail(error.fault)
        except FileNotFoundError:
            log.exception("batch %s: its content is gone", self.batch.id)
            await self.fail(_GONE)

    async def _validated(self) -> bool:
        """Whether there is work to do; when not, the batch has ended."""
        if self.batch.status is Status.CANCELLING:
            await self._end(Status.CANCELLED)
            return False
        blob = await self._input()
        found = await asyncio.to_thread(self._check, blob, rules_of(self.batch, self.it.settings))
        if self.halt.stop is not None:
            await self._end(Status.CANCELLED if self.halt.stop is Stop.CANCELLED else Status.EXPIRED)
            return False
        if found.faults:
            await self._end(Status.FAILED, found.faults)
            return False
        self.batch = await self.it.database.run(leases.begin, self.batch.id, self.feeder, found.parts, found.model)
        return True

    def _check(self, blob: str, rules: Rules) -> Checked:
        return check(lambda: self._until_halt(self.it.blobs.chunks(blob)), rules)

    def _until_halt(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self.halt.stop is not None:
                return
            yield chunk

    async def _input(self) -> str:
        try:
            return (await self.it.database.run(files.get, self.batch.input_file, self.batch.caller)).blob
        except FileNotFound:
            raise Broken(_GONE) from None

    async def _parts(self) -> None:
        """Work through all parts that are not done, some at once. What expires is listed to its end.

        Of a batch that is cancelled the parts that never began are left as they are: to list them would take as long
        as the file is, and nobody waits for it.
        """
        if self.batch.endpoint not in ENDPOINTS:
            raise Broken(Fault("invalid_endpoint", "This server does not have the endpoint any more."))
        blob = await self._input()
        fed, after, more = self.batch.fed, -1, True
        waiting: deque[Part] = deque()
        running: dict[asyncio.Task[None], Part] = {}
        try:
            while True:
                if more and len(waiting) < PAGE // 2:
                    page = await self.it.database.run(parts.open_parts, self.batch.id, after, PAGE)
                    waiting.extend(page)
                    more = len(page) == PAGE
                    after = page[-1].part if page else after
                # One that waits for its tenant's limits takes no room from those of others.
                while waiting and not self._ends_at(waiting[0], fed) and not (running and self.pace.held):
                    if not self.window.take(waiting[0].lines, anyhow=not running):
                        break
                    part = waiting.popleft()
                    running[self._begin(part, blob, again=part.part < fed)] = part
                    fed = max(fed, part.part + 1)
                if not running:
                    break
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    self._ended(task, running.pop(task))
        finally:
            for task, part in running.items():
                task.cancel()
                self.window.give(part.lines)
            await asyncio.gather(*running, return_exceptions=True)
        if waiting and self.halt.stop is Stop.EXPIRED:
            await self._end_rest(waiting[0], blob, self.halt.stop)

    def _ends_at(self, part: Part, fed: int) -> bool:
        """Whether this part and all after it are not begun any more."""
        return self.halt.stop is not None and part.part >= fed

    def _begin(self, part: Part, blob: str, *, again: bool) -> asyncio.Task[None]:
        endpoint = ENDPOINTS[self.batch.endpoint]
        run = PartRun(self.it, self.batch, self.feeder, part, endpoint, blob, again, self.halt, self.pace)
        self.live[part.part] = run.progress
        return asyncio.create_task(self._part(run), name=f"part {part.part} of batch {self.batch.id}")

    async def _part(self, run: PartRun) -> None:
        if not run.again:
            await self.it.database.run(leases.fed, self.batch.id, self.feeder, run.part.part + 1)
        await run.run()

    def _ended(self, task: asyncio.Task[None], part: Part) -> None:
        self.window.give(part.lines)
        last = self.live.pop(part.part)
        task.result()
        self.done += Tally(last.completed, part.lines - last.completed)

    async def _end_rest(self, first: Part, blob: str, stop: Stop) -> None:
        """List all lines from this part on as not done; none of them has a job."""
        key = await rest_of(self.it, self.batch, first, blob, stop)
        done = parts.DonePart(first.part, Tally(failed=first.lines), None, key)
        await self.it.database.run(parts.finish_part, self.batch.id, self.feeder, done, [], rest=True)

    async def _finish(self) -> None:
        """Put the parts' lines together into files."""
        self.batch = batch = await self.it.database.run(leases.finalize, self.batch.id, self.feeder)
        tally = await self.it.database.run(parts.tally, batch.id)
        output, failures = await joined(self.it, batch)
        late = batch.finalizing_at is not None and batch.finalizing_at >= batch.expires_at
        status = final_status(batch.status, late=late, succeeded=tally.completed)
        await self._end(status, [_NONE] if status is Status.FAILED else (), output, failures)

    async def _end(
        self,
        status: Status,
        faults: Sequence[Fault] = (),
        output: StoredFile | None = None,
        failures: StoredFile | None = None,
    ) -> None:
        self.over = True
        errors = [fault.as_data() for fault in faults] or None
        left = await self.it.database.run(
            leases.end, self.batch.id, self.feeder, status, errors=errors, output=output, failures=failures
        )
        for job in left:
            self.it.submitter.forget(job)
            await self.it.limiter.release(job, self.batch.caller)
        await ring(self.it.redis)
        with suppress(OSError):
            await asyncio.to_thread(self.it.blobs.delete_folder, self.batch.folder)
