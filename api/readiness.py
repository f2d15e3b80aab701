"""Whether jobs can run now, and what is missing if they cannot."""

from __future__ import annotations

from api.services import Services
from tasks.errors import TaskError
from tasks.store import read

NO_WORKER = "No worker has sent a heartbeat within 15 seconds; start one, or wait for it."
ALL_LOST = "The device or the engine child of every worker has failed; the workers restart by themselves."


async def missing_workers(it: Services) -> dict[str, str]:
    """Why no device answers; empty while one does."""
    try:
        workers = await it.presence.live()
    except TaskError as error:
        return {"broker": error.message}
    if not workers:
        return {"worker": NO_WORKER}
    return {"worker": ALL_LOST} if all(worker.lost for worker in workers) else {}


async def missing(it: Services) -> dict[str, str]:
    """Why no job can run; empty while database and broker answer and a worker is there."""
    reasons = await missing_workers(it)
    try:
        await it.database.run(read.jobs, [])
    except TaskError as error:
        reasons["database"] = error.message
    if not it.link.up:
        reasons.setdefault("broker", "The pub/sub link to Valkey is down.")
    return reasons


class NotReady(TaskError):
    """No job can run just now; come again after Retry-After."""

    code = "not_ready"
    retryable = True
