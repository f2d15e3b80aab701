"""One part of a batch: its lines become jobs, and how these ended becomes lines of the output and the error file.

All of it may be done again after a death: a line's job has always the same id, so it is found and not run twice, and
nothing of the part is in any file until the one transaction that ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from uuid import UUID

from api.answers import End
from api.body import OFF_LOOP_BYTES
from api.compat.calls import admitted, ended
from api.compat.dialect import UNEXPECTED, Failure
from api.compat.endpoints import Endpoint
from api.compat.failures import renamed
from api.door import off_loop
from api.feeding import shaping
from api.feeding.endings import Progress, Watch
from api.feeding.fetching import UntilHalt
from api.feeding.halt import Halt
from api.feeding.jobs import Jobs, Pace
from api.feeding.reading import rules_of
from api.feeding.services import Feeding
from api.feeding.shaping import Shaped, Stop
from api.sinks import Sink, sinks
from catalog.errors import RoostError
from tasks.batches import Batch, Part, Tally, line_job
from tasks.errors import StoreUnavailable
from tasks.jobs import State
from tasks.lines import Line, RawLine, read_line, split
from tasks.messages import Submission
from tasks.store import batch_parts as parts
from tasks.store.read import Result

log = logging.getLogger(__name__)

GROUP_BYTES = 8 * 2**20
"""Results read at once, unless one alone is larger."""

Found = Mapping[UUID, Result]

_NO_JOB = (None, 0)


@dataclass(slots=True)
class PartRun:
    """The work on one part. `again`: some of its lines may have jobs already."""

    it: Feeding
    batch: Batch
    feeder: str
    part: Part
    endpoint: Endpoint
    input: str
    again: bool
    halt: Halt
    pace: Pace = field(default_factory=Pace)
    progress: Progress = field(default_factory=Progress)
    faults: dict[int, Failure] = field(default_factory=dict)
    _door: Feeding = field(init=False)

    def __post_init__(self) -> None:
        self._door = replace(self.it, fetching=UntilHalt(self.it.fetching, self.halt))

    async def run(self) -> None:
        """Do it. Raises LeaseLost, StoreUnavailable, or OSError when a blob cannot be had."""
        lines = await asyncio.to_thread(lambda: list(self._lines()))
        with self.it.endings.watching([self._id(line) for line in lines], self.progress) as watch:
            if self.halt.stop is None:
                await self._feed(lines)
            sizes = await self._wait(lines, watch)
        done = await self._collect(lines, sizes)
        ids = [self._id(line) for line in lines]
        await self.it.database.run(parts.finish_part, self.batch.id, self.feeder, done, ids)

    def _id(self, line: RawLine) -> UUID:
        return line_job(self.batch.id, line.number)

    def _lines(self) -> Iterator[RawLine]:
        """The lines as they are in the file; of a large one its place alone, for it is read when its turn comes."""
        for raw in self._split(self.part.first_line, self.part.start, self.part.size):
            if not raw.blank:
                yield replace(raw, data=None) if _large(raw) else raw

    def _split(self, number: int, start: int, size: int) -> Iterator[RawLine]:
        chunks = self.it.blobs.chunks(self.input, start, size)
        return split(chunks, self.it.settings.max_body_bytes, number=number, start=start)

    def _decoded(self, raw: RawLine) -> Line:
        whole = next(self._split(raw.number, raw.start, raw.size)) if _large(raw) else raw
        return read_line(whole, rules_of(self.batch, self.it.settings))

    def _turn(self, *, large: bool) -> AbstractAsyncContextManager[None]:
        return self.it.large if large else nullcontext()

    async def _feed(self, lines: Sequence[RawLine]) -> None:
        """Give each line its job; what is wrong with one is its fault."""
        jobs = Jobs(self.it, self.halt, self.pace)
        # What has its row has been held against the limits.
        there = await self.it.database.run(parts.job_states, list(map(self._id, lines))) if self.again else {}
        async with asyncio.TaskGroup() as puts:
            for line in lines:
                if (state := there.get(self._id(line), _NO_JOB)[0]) is not None and state.final:
                    # What has run is found, whatever the door would say of its line by now.
                    continue
                job = await self._admitted(line, jobs)
                if state is not None:
                    self.faults.pop(line.number, None)
                if job is not None and (job.id in there or await jobs.allowed(job)):
                    puts.create_task(jobs.put(job, again=self.again))
                if self.halt.stop is not None:
                    return

    async def _admitted(self, line: RawLine, jobs: Jobs) -> Submission | None:
        try:
            return await jobs.admitted(lambda: self._admit(line, large=_large(line)))
        except FileNotFoundError:
            # The lines are read once more when they have ended, and the batch fails there.
            return None
        except RoostError as error:
            self.faults[line.number] = Failure.of(error)
        except Exception:
            log.exception("line %d of batch %s could not be read", line.number, self.batch.id)
            self.faults[line.number] = UNEXPECTED
        return None

    async def _admit(self, raw: RawLine, *, large: bool) -> Submission:
        async with self._turn(large=large):
            line = await off_loop(large, self._decoded, raw)
            asked = await off_loop(large, shaping.asked_for, self.batch, self.endpoint, line)
            job = await admitted(self._door, asked, caller=self.batch.caller, large=large)
        return shaping.as_line(job, self.batch, line.number)

    async def _wait(self, lines: Sequence[RawLine], watch: Watch) -> Mapping[UUID, int]:
        """Wait until all jobs have ended, or end them; how large the result of each is."""
        ids = [self._id(line) for line in lines if line.number not in self.faults]
        self.progress.failed += len(self.faults)
        watch.drop(self._id(line) for line in lines if line.number in self.faults)
        # Of a part that is taken up again, jobs may have ended before we listened.
        look = self.again
        while True:
            if not look and self.halt.stop is None:
                await watch.wait(self.halt)
            look = False
            states = await self.it.database.run(parts.job_states, ids)
            over = [id_ for id_, (state, _) in states.items() if state.final]
            watch.drop(over)
            succeeded = sum(state is State.SUCCEEDED for state, _ in states.values())
            self.progress.completed, self.progress.failed = succeeded, len(over) - succeeded + len(self.faults)
            if len(over) == len(states):
                return {id_: size for id_, (_, size) in states.items()}
            if self.halt.stop is not None:
                for id_ in await self.it.database.run(parts.cancel_jobs, ids):
                    self.it.submitter.forget(id_)
                    await self.it.limiter.release(id_, self.batch.caller)

    async def _collect(self, lines: Sequence[RawLine], sizes: Mapping[UUID, int]) -> parts.DonePart:
        total = Tally()
        async with sinks(self.it.blobs, self.batch.folder, self.batch.folder) as (output, errors):
            for group in self._groups(lines, sizes):
                async with self._turn(large=any(map(_large, group))):
                    found = await self.it.database.run(parts.ended_jobs, [self._id(line) for line in group])
                    total += await asyncio.to_thread(self._write, group, found, output, errors)
        return parts.DonePart(self.part.part, total, output.key, errors.key)

    def _groups(self, lines: Sequence[RawLine], sizes: Mapping[UUID, int]) -> Iterator[list[RawLine]]:
        group: list[RawLine] = []
        held = 0
        for line in lines:
            size = sizes.get(self._id(line), 0)
            if group and held + size > GROUP_BYTES:
                yield group
                group, held = [], 0
            group.append(line)
            held += size
        if group:
            yield group

    def _write(self, lines: Sequence[RawLine], found: Found, output: Sink, errors: Sink) -> Tally:
        total = Tally()
        for raw in lines:
            result = found.get(self._id(raw))
            shaped = self._shaped(self._decoded(raw), result)
            (output if shaped.ok else errors).write(shaped.data)
            total += Tally.of(succeeded=shaped.ok, usage=None if result is None else result.job.usage)
        return total

    def _shaped(self, line: Line, result: Result | None) -> Shaped:
        if (fault := self.faults.get(line.number)) is not None:
            return shaping.failed(self.batch, line, fault)
        if result is None:
            stop = self.halt.stop
            return shaping.unexpected(self.batch, line) if stop is None else shaping.stopped(self.batch, line, stop)
        job = result.job
        if job.state is State.CANCELLED and self.halt.stop is not None:
            return shaping.stopped(self.batch, line, self.halt.stop)
        if job.state is State.EXPIRED and job.deadline_at is not None and job.deadline_at >= self.batch.expires_at:
            return shaping.stopped(self.batch, line, Stop.EXPIRED)
        try:
            rows = result.rows if result.blob is None else self.it.contents.contents.get(result.blob)
            return shaping.succeeded(self.batch, line, self.endpoint, ended(self.it, End(job, rows)))
        except StoreUnavailable:
            # The store of blobs is away: the part waits for it.
            raise
        except RoostError as error:
            names = shaping.asked_for(self.batch, self.endpoint, line).names
            return shaping.failed(self.batch, line, Failure.of(renamed(error, names)))
        except Exception:
            log.exception("the reply of line %d of batch %s could not be made", line.number, self.batch.id)
            return shaping.unexpected(self.batch, line)


def _large(line: RawLine) -> bool:
    return line.size > OFF_LOOP_BYTES
