"""Finding a job and moving it, for all who do so by a path."""

from __future__ import annotations

import logging
from uuid import UUID

from redis.exceptions import RedisError

from api.services import Services
from tasks import keys
from tasks.errors import AlreadyFinished, JobNotFound
from tasks.jobs import Job, State
from tasks.notices import Change, pack_changes
from tasks.store import change, read
from tasks.webhooks.bell import ring

log = logging.getLogger(__name__)


def job_id(text: str) -> UUID:
    """The id in a path. What is no id names no job: raises JobNotFound."""
    try:
        return UUID(text)
    except ValueError:
        raise JobNotFound from None


async def find_job(it: Services, id_: UUID, caller: str) -> Job:
    """The caller's job as its row tells it. Raises JobNotFound."""
    job = await it.database.run(read.job, id_, caller)
    if job is None:
        raise JobNotFound
    return job


async def cancel_job(it: Services, id_: UUID, caller: str) -> Job:
    """End a job that has not ended; one that was cancelled before stays so. Raises JobNotFound or AlreadyFinished."""
    changed = await it.database.run(change.cancel, id_, caller)
    if changed.changed:
        await tell(it, changed.job)
        if changed.told:
            await ring(it.redis)
        await it.limiter.release(id_, caller)
        it.submitter.forget(changed.job.id)
    elif changed.job.state is not State.CANCELLED:
        raise AlreadyFinished
    return changed.job


async def tell(it: Services, job: Job) -> None:
    """Wake who waits for the job. Those who do not hear it read the row within two seconds."""
    try:
        await it.redis.publish(keys.CHANGES, pack_changes([Change(job.id, job.state.value, job.version)]))
    except (RedisError, OSError) as error:
        log.warning("those who wait for job %s were not woken: %s", job.id, type(error).__name__)
