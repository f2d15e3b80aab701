"""Trying ended jobs again: held against the limits of their tenant, as new ones are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from api.moves import find_job, tell
from api.render import moment
from api.services import Services
from tasks.dead import MOST_REDRIVEN, Dead, Redriven
from tasks.errors import NotRetryable
from tasks.jobs import Event, Job, states_before
from tasks.store import change
from tasks.store import dead as store
from tasks.tenant_limits import Later


async def retry_job(it: Services, id_: UUID, caller: str) -> Job:
    """Queue one job again. Raises JobNotFound or NotRetryable, or as limits do."""
    job = await find_job(it, id_, caller)
    if job.state not in states_before(Event.RETRY):
        raise NotRetryable(_why_not(job))
    await it.limiter.admit(job)
    is_open = False
    try:
        changed = await it.database.run(change.retry, id_, caller, moment(it.clock()))
        is_open = not changed.job.state.final
    finally:
        if not is_open:
            await it.limiter.release(id_, caller, job.items)
    if not changed.changed:
        if is_open:  # another request has queued it, and counts it as open under the same id
            it.limiter.unused(caller, job.items)
        raise NotRetryable(_why_not(changed.job))
    await it.submitter.revive([id_])
    await tell(it, changed.job)
    return changed.job


def _why_not(job: Job) -> str:
    if not job.keep and job.state in states_before(Event.RETRY):
        return "The job was submitted with 'store': false, so its inputs are gone. Submit the work again."
    return f"The job is {job.state}; only one that failed, was cancelled or expired is tried again."


async def redrive_ids(it: Services, caller: str, ids: Sequence[UUID]) -> Redriven:
    """Queue failed jobs again by their ids. Raises as limits do if they let in none."""
    found = await it.database.run(store.named, caller, ids, _now(it))
    done, limited = await _redriven(it, caller, found)
    held = {one.id for one in found[len(found) - limited :]} if limited else set[UUID]()
    left = [id_ for id_ in ids if id_ not in done and id_ not in held]
    refused = await it.database.run(store.refusals, caller, left, _now(it)) if left else []
    return Redriven(sorted(done), refused, more=bool(limited))


async def redrive_all(
    it: Services, caller: str, dead: Dead, limit: int, after: UUID | None = None, *, killers: bool
) -> Redriven:
    """Queue failed jobs again that match, the oldest first. Raises as limits do if they let in none.

    Who asks until there are no more does so with `after`: else jobs that fail again at once are had again and again.
    """
    limit = min(limit, MOST_REDRIVEN)
    found = await it.database.run(store.matching, caller, dead, _now(it), limit + 1, killers=killers, after=after)
    looked_at = found[:limit]
    done, limited = await _redriven(it, caller, looked_at)
    tried = looked_at[: len(looked_at) - limited]
    return Redriven(sorted(done), more=bool(limited) or len(found) > limit, last=tried[-1].id if tried else None)


async def _redriven(it: Services, caller: str, found: Sequence[store.Candidate]) -> tuple[set[UUID], int]:
    """Which of these are queued again, and how many at the end of them the limits do not let in now."""
    let_in = 0
    for one in found:
        try:
            await it.limiter.admit(one)
        except Later:
            if not let_in:
                raise
            break
        let_in += 1
    done: set[UUID] = set()
    try:
        if let_in:
            done = set(await it.database.run(store.redrive, caller, [one.id for one in found[:let_in]], _now(it)))
    except BaseException:
        for one in found[:let_in]:
            await it.limiter.release(one.id, caller, one.items)
        raise
    for one in found[:let_in]:
        if one.id not in done:  # another request has it, and counts it as open; the sweeper takes out what is not
            it.limiter.unused(caller, one.items)
    if done:
        await it.submitter.revive(sorted(done))
    return done, len(found) - let_in


def _now(it: Services) -> datetime:
    return moment(it.clock())
