"""The one thread that writes results.

Everything that has ended goes into one transaction, then waiters are woken, then the parent may ack. Results too large
for a row are in the blob store before that.

While one transaction runs, the next one gathers, so the batch grows with the load and nothing waits when there is none.
A database that is away is waited for: results stay here until it is back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from catalog.terms import Lane
from tasks import notices
from tasks.child.completion import at_commit
from tasks.child.shelf import Shelf
from tasks.child.tally import Tally
from tasks.child.wakes import Wakes
from tasks.db import Database
from tasks.errors import Overloaded, StoreUnavailable, TaskError, as_data
from tasks.jobs import State
from tasks.messages import Completion
from tasks.store.finish import Ended, finish

log = logging.getLogger(__name__)

MOST_JOBS = 512
MOST_BYTES = 16 * 2**20
SHY_JOBS = 16
"""Bulk jobs in a transaction that callers wait for."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that ended, with what the parent is told: seconds it ran."""

    key: str
    completion: Completion
    runtime_s: float


class Committer:
    """Start it, `put` endings from any thread, and `close` it to write what is left and end the thread."""

    def __init__(
        self,
        database: Database,
        wakes: Wakes,
        committed: Callable[[Sequence[tuple[str, str, float, str | None]]], None],
        *,
        tally: Tally | None = None,
        shelf: Shelf | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._tally = tally or Tally()
        self._shelf = shelf
        self._shelving = 0
        self._wall = wall
        self._database = database
        self._wakes = wakes
        self._committed = committed
        self._waiting: list[Ending] = []
        self._condition = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, endings: Sequence[Ending]) -> None:
        """Hand over jobs that ended together. Returns at once."""
        large = [] if self._shelf is None else [ending for ending in endings if self._shelf.takes(ending.completion)]
        with self._condition:
            self._waiting.extend(endings if not large else [ending for ending in endings if ending not in large])
            self._shelving += len(large)
            self._condition.notify()
        for ending in large:
            self._put_away(ending)

    def _put_away(self, ending: Ending) -> None:
        """Write a large result apart; its job is committed then."""

        def ready(completion: Completion) -> None:
            with self._condition:
                self._waiting.append(replace(ending, completion=completion))
                self._shelving -= 1
                self._condition.notify()

        if self._shelf is not None:
            self._shelf.put(ending.completion, ready)

    def close(self, timeout_s: float) -> bool:
        """Write what is left. False if the database did not take it in time; the broker will deliver it again."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting:
                    if self._closed and not self._shelving:
                        return
                    self._condition.wait()
                batch, self._waiting = cut(self._waiting)
            try:
                self._write(batch)
            except Exception:
                log.exception("what became of %d jobs could not be told; their rows say it", len(batch))
                self._committed([(ending.key, "dropped", ending.runtime_s, None) for ending in batch])

    def _write(self, batch: Sequence[Ending]) -> None:
        written = self._commit([ending.completion for ending in batch])
        if self._shelf is not None:
            self._shelf.discard(_unused(batch, written))
        ended = self._wall()
        self._wake(written)
        for completion, outcome in written:
            if outcome.applied and outcome.state is not None and outcome.state.final:
                self._tally.ended(completion, outcome.state, max(0.0, ended - completion.finished))
        report = []
        for ending, (completion, outcome) in zip(batch, written, strict=True):
            code = None if completion.error is None else str(completion.error["code"])
            report.append((ending.key, _status(completion, outcome), ending.runtime_s, code))
        self._committed(report)

    def _commit(self, completions: Sequence[Completion]) -> list[tuple[Completion, Ended]]:
        """Write all in one transaction, for as long as the database takes. A row it refuses fails alone.

        When it refuses even that, the job is let go: without a message the sweeper finds it, and it is tried again.
        Returns what was written and what came of it, in order.
        """
        refused = False
        while True:
            now = self._wall()
            completions = [at_commit(completion, now) for completion in completions]
            try:
                return list(zip(completions, self._database.run(finish, completions), strict=True))
            except (StoreUnavailable, Overloaded):
                log.warning("database away; %d results are kept until it is back", len(completions))
            except Exception:
                if len(completions) > 1:
                    half = len(completions) // 2
                    return self._commit(completions[:half]) + self._commit(completions[half:])
                id_ = completions[0].submission.id
                log.exception("the database refused the result of job %s", id_)
                if refused:
                    return [(completions[0], Ended(id_, 0, None, applied=False))]
                refused, completions = True, [_refused(completions[0])]

    def _wake(self, written: Sequence[tuple[Completion, Ended]]) -> None:
        changes = []
        replies: dict[str, list[notices.Reply]] = {}
        ended: dict[str, list[UUID]] = {}
        for completion, outcome in written:
            if not outcome.applied or outcome.state is None:
                continue
            changes.append(notices.Change(outcome.id, outcome.state.value, outcome.version))
            if outcome.state.final:
                ended.setdefault(completion.submission.caller, []).append(outcome.id)
            address = completion.submission.reply_to
            if address is not None and outcome.state.final:
                replies.setdefault(address, []).append(_reply(completion, outcome.state, outcome.version))
        self._wakes.changed(changes, replies, ended)


def _unused(batch: Sequence[Ending], written: Sequence[tuple[Completion, Ended]]) -> list[str]:
    """The blobs of results that no row names: another attempt ended the job, or the database refused this one."""
    return [
        ending.completion.result_blob
        for ending, (completion, outcome) in zip(batch, written, strict=True)
        if ending.completion.result_blob is not None and not (outcome.applied and completion.result_blob is not None)
    ]


def cut(waiting: list[Ending]) -> tuple[list[Ending], list[Ending]]:
    """As many of the oldest as one transaction should hold, and the rest.

    Where callers wait for some of them, these go first, with few others: the transaction takes as long as all of it.
    """
    urgent = [ending for ending in waiting if ending.completion.submission.lane is Lane.INTERACTIVE]
    if urgent and len(waiting) - len(urgent) > SHY_JOBS:
        others = [ending for ending in waiting if ending.completion.submission.lane is not Lane.INTERACTIVE]
        ready, left = cut(urgent)
        return ready + others[:SHY_JOBS], left + others[SHY_JOBS:]
    size = 0
    for count, ending in enumerate(waiting):
        size += len(ending.completion.result or b"") + len(ending.completion.submission.inputs)
        if count >= MOST_JOBS or (count and size > MOST_BYTES):
            return waiting[:count], waiting[count:]
    return waiting, []


def _status(completion: Completion, outcome: Ended) -> str:
    if not outcome.applied:
        return "dropped"
    return "succeeded" if completion.state == State.SUCCEEDED else "failed"


def _reply(completion: Completion, state: State, version: int) -> notices.Reply:
    result = completion.result
    travels = result is not None and len(result) <= notices.INLINE_RESULT_BYTES
    return notices.Reply(
        id=completion.submission.id,
        state=state.value,
        version=version,
        attempt=completion.submission.attempt,
        fence=completion.submission.fence,
        items_failed=completion.items_failed,
        error=completion.error,
        device_ms=completion.device_ms,
        started=completion.started,
        finished=completion.finished,
        expires=completion.finished + completion.submission.retention_s,
        worker=completion.worker,
        result=result if travels else None,
        has_result=result is not None or completion.result_blob is not None,
        timings=completion.timings,
        usage=completion.usage,
    )


class ResultRefused(TaskError):
    """The result could not be stored; the worker's log has the reason. Try the job again or report it."""

    code = "result_refused"


def _refused(completion: Completion) -> Completion:
    return replace(
        completion,
        state=State.FAILED.value,
        result=None,
        result_blob=None,
        items_failed=completion.submission.items,
        error=as_data(ResultRefused()),
        run_at=None,
    )
