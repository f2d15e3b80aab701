"""From the engine's outcomes to what is committed: state, result rows, error, timings, usage. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from catalog.errors import RoostError
from engine.errors import EngineError, NotFinite
from engine.types import Finished, Outcome, Output, Spent
from tasks.child.hand import Held
from tasks.errors import AllItemsFailed, DeadlinePassed, as_data
from tasks.jobs import State
from tasks.messages import Completion, Submission
from tasks.results import finite, pack_rows
from tasks.retries import delay_s, tries_again


def of_finished(held: Held, done: Finished, *, wall: float, clock: float, worker: str, max_attempts: int) -> Completion:
    """How a job ended that the engine has worked through. `wall` and `clock` are now, on both clocks."""
    by_index = {item.index: outcome for item, outcome in zip(done.work.items, done.outcomes, strict=True)}
    return _completion(
        held,
        by_index,
        spent=done.spent,
        device_ms=done.device_ms,
        engine_got=wall - (clock - held.arrived),
        engine_left=wall - (clock - done.finished),
        wall=wall,
        worker=worker,
        max_attempts=max_attempts,
    )


def of_error(held: Held, error: RoostError, *, wall: float, worker: str) -> Completion:
    """How a job ended that never reached the device, with one error for every item that had none of its own."""
    outcomes = {index: error for index in range(held.job.items) if index not in held.job.faults}
    return _completion(
        held,
        outcomes,
        spent=Spent(),
        device_ms=0.0,
        engine_got=wall,
        engine_left=wall,
        wall=wall,
        worker=worker,
        max_attempts=0,
    )


def at_commit(completion: Completion, wall: float) -> Completion:
    """The completion as its transaction begins: what it waited for until then belongs to the commit."""
    waited = _ms(wall - completion.finished)
    if not waited or not completion.timings:
        return completion
    timings = dict(completion.timings)
    for part in ("commit_ms", "total_ms"):
        timings[part] = round(timings.get(part, 0.0) + waited, 3)
    return replace(completion, finished=wall, timings=timings)


def _completion(
    held: Held,
    outcomes: Mapping[int, Outcome | RoostError],
    *,
    spent: Spent,
    device_ms: float,
    engine_got: float,
    engine_left: float,
    wall: float,
    worker: str,
    max_attempts: int,
) -> Completion:
    job = held.job
    rows, errors, usage = _rows(held, outcomes)
    # What the door refused says nothing of whether another try may help.
    late = [error for index, error in errors.items() if index in outcomes]
    state, error = _verdict(list(errors.values()), late, job.items)
    run_at = None
    common = _common(late)
    if (
        error is not None
        and common is not None
        and tries_again(retryable=bool(common["retryable"]), attempt=job.attempt, max_attempts=max_attempts)
    ):
        state, error, run_at = State.QUEUED, common, wall + delay_s(job.attempt)
    return Completion(
        submission=job,
        state=state.value,
        result=None if run_at is not None else pack_rows(rows),
        items_failed=len(errors),
        error=error,
        device_ms=round(device_ms, 3),
        started=held.received if held.started is None else held.received + (held.started - held.arrived),
        finished=wall,
        timings=timings(held.job, spent, engine_got=engine_got, engine_left=engine_left, wall=wall),
        usage={"items": job.items, **usage},
        worker=worker,
        run_at=run_at,
    )


def _rows(
    held: Held, outcomes: Mapping[int, Outcome | RoostError]
) -> tuple[list[dict[str, Any]], dict[int, Mapping[str, Any]], dict[str, int]]:
    """One row per item in the caller's order, the errors among them by index, and what was used in all."""
    rows: list[dict[str, Any]] = []
    errors: dict[int, Mapping[str, Any]] = {}
    usage = {"tokens": 0}
    for index, item in enumerate(held.items):
        row: dict[str, Any] = {"id": item["id"]} if "id" in item else {}
        outcome = outcomes.get(index)
        if isinstance(outcome, Output) and not finite(outcome.fields):
            outcome = NotFinite()
        fault = held.job.faults.get(index) if outcome is None else None
        if outcome is not None and not isinstance(outcome, RoostError):
            row.update(outcome.fields)
            row["tokens"] = outcome.tokens
            row["truncated"] = outcome.truncated
            usage["tokens"] += outcome.tokens
            for name, count in outcome.usage.items():
                usage[name] = usage.get(name, 0) + count
        else:
            found = fault if fault is not None else as_data(outcome or EngineError("The item got no outcome."))
            row["error"] = found
            errors[index] = found
        rows.append(row)
    return rows, errors, usage


def _verdict(
    errors: Sequence[Mapping[str, Any]], late: Sequence[Mapping[str, Any]], items: int
) -> tuple[State, Mapping[str, Any] | None]:
    """The job's state and error. A job fails only when all items do, with their common error.

    It expires when its deadline ended all that the door let through: `late` are the errors of those items.
    """
    if len(errors) < items:
        return State.SUCCEEDED, None
    common = _common(late)
    if common is not None and common["code"] == DeadlinePassed.code:
        return State.EXPIRED, common
    return State.FAILED, _common(errors) or as_data(AllItemsFailed())


def _common(errors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The error that all of these are, if they are one."""
    return errors[0] if len({error["code"] for error in errors}) == 1 else None


def timings(job: Submission, spent: Spent, *, engine_got: float, engine_left: float, wall: float) -> dict[str, float]:
    """Where the milliseconds went, from acceptance to `wall`. The parts follow one another and add up to `total_ms`.

    The moments come from clocks of several machines: one that lies before its predecessor is moved to it. A job that
    was delivered before has spent the time of its earlier tries, and between them, in the queue; so has one whose
    message was sent again.
    """
    sent = job.created if job.fence > 1 else max(job.created, job.sent)
    got = max(sent, engine_got)
    left = max(got, engine_left)
    wall = max(left, wall)
    device = min(spent.device, left - got)
    load = min(spent.load, left - got - device)
    return {
        "admit_ms": _ms(sent - job.created),
        "queue_ms": _ms(got - sent),
        "load_ms": _ms(load),
        "batch_wait_ms": _ms(left - got - load - device),
        "device_ms": _ms(device),
        "commit_ms": _ms(wall - left),
        "total_ms": _ms(wall - job.created),
    }


def _ms(seconds: float) -> float:
    return round(max(0.0, seconds) * 1000.0, 3)
