"""Writes results: a thread for each lane, so that nobody who waits for one waits for a backfill's to be written.

Everything of a lane that has ended goes into one transaction, then waiters are woken, then the parent may ack. Results
too large for a row are in the blob store before that.

While one transaction runs, the next one gathers, so the batch grows with the load and nothing waits when there is none.
A database that is away is waited for: results stay here until it is back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from catalog.terms import Lane
from tasks import notices
from tasks.child.completion import at_commit
from tasks.child.endings import Ending, Line
from tasks.child.shelf import Shelf
from tasks.child.tally import Tally
from tasks.child.wakes import Wakes
from tasks.db import Database
from tasks.errors import Overloaded, StoreUnavailable, TaskError, as_data
from tasks.jobs import State
from tasks.messages import Completion
from tasks.store.finish import Ended, finish

log = logging.getLogger(__name__)


class Committer:
    """Start it, `put` endings from any thread, and `close` it to write what is left and end the threads."""

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
        self._wall = wall
        self._database = database
        self._wakes = wakes
        self._committed = committed
        self._lines = {lane: Line(f"committer of {lane}", self._write) for lane in Lane}

    def start(self) -> None:
        """Start the threads."""
        for line in self._lines.values():
            line.start()

    def put(self, endings: Sequence[Ending]) -> None:
        """Hand over jobs that ended together. Returns at once."""
        for lane, line in self._lines.items():
            own = [ending for ending in endings if ending.completion.submission.lane is lane]
            large = [] if self._shelf is None else [ending for ending in own if self._shelf.takes(ending.completion)]
            if own:
                line.put([ending for ending in own if ending not in large], expected=len(large))
            for ending in large:
                self._put_away(ending, line)

    def _put_away(self, ending: Ending, line: Line) -> None:
        """Write a large result apart; its job is committed then."""

        def ready(completion: Completion) -> None:
            line.put([replace(ending, completion=completion)], expected=-1)

        if self._shelf is not None:
            self._shelf.put(ending.completion, ready)

    def close(self, timeout_s: float) -> bool:
        """Write what is left. False if the database did not take it in time; the broker will deliver it again."""
        until = time.monotonic() + timeout_s
        for line in self._lines.values():
            line.close()
        return all(line.ended(max(0.0, until - time.monotonic())) for line in self._lines.values())

    def _write(self, batch: Sequence[Ending]) -> None:
        try:
            self._write_all(batch)
        except Exception:
            log.exception("what became of %d jobs could not be told; their rows say it", len(batch))
            self._committed([(ending.key, "dropped", ending.runtime_s, None) for ending in batch])

    def _write_all(self, batch: Sequence[Ending]) -> None:
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
        self._wakes.changed(changes, replies, ended, told=any(outcome.told for _, outcome in written))


def _unused(batch: Sequence[Ending], written: Sequence[tuple[Completion, Ended]]) -> list[str]:
    """The blobs that no row names.

    Those of results, where another attempt ended the job or the database refused this one; those of the inputs of jobs
    that are not kept.
    """
    keys = []
    for ending, (completion, outcome) in zip(batch, written, strict=True):
        result, job = ending.completion.result_blob, completion.submission
        if result is not None and not (outcome.applied and completion.result_blob is not None):
            keys.append(result)
        if job.inputs_blob is not None and not job.keep and outcome.state is not None and outcome.state.final:
            keys.append(job.inputs_blob)
    return keys


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
