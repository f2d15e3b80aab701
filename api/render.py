"""A job as its callers see it, and the two ways to know a job without reading its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from api.media import Media, dumps
from tasks.jobs import Job, State
from tasks.messages import Submission
from tasks.notices import Reply


def job_object(job: Job) -> dict[str, Any]:
    """The job object of every reply. Times are UTC; costs and timings are milliseconds."""
    name = str(job.id)
    base = f"/v1/jobs/{name}"
    return {
        "id": name,
        "object": "job",
        "status": job.state.value,
        "verb": job.verb.value,
        "model": job.model,
        "revision": job.revision,
        "lane": job.lane.value,
        "priority": job.priority,
        "items": job.items,
        "items_failed": job.items_failed,
        "cost": {"predicted_ms": round(job.cost_ms, 3), "device_ms": job.device_ms},
        "attempts": job.attempt,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "deadline_at": job.deadline_at,
        "expires_at": job.expires_at,
        "tags": job.tags,
        "options": job.options,
        "store": job.keep,
        "error": job.error,
        "timings": job.timings,
        "usage": job.usage,
        "worker": job.worker,
        "urls": {
            "self": base,
            "result": f"{base}/result",
            "events": f"{base}/events",
            "cancel": f"{base}/cancel",
            "retry": f"{base}/retry",
        },
    }


def job_reply(job: Job, status: int, media: Media = Media.JSON, headers: Mapping[str, str] | None = None) -> Response:
    """The job as a whole reply."""
    return Response(dumps(job_object(job), media), status_code=status, headers=headers, media_type=media.value)


def queued_job(submission: Submission) -> Job:
    """What the row of a new submission says."""
    deadline = submission.deadline
    return Job(
        id=submission.id,
        caller=submission.caller,
        verb=submission.verb,
        model=submission.model,
        revision=submission.revision,
        lane=submission.lane,
        priority=submission.priority,
        state=State.QUEUED,
        items=submission.items,
        items_failed=0,
        cost_ms=submission.cost_ms,
        device_ms=None,
        attempt=submission.attempt,
        fence=submission.fence,
        version=1,
        created_at=moment(submission.created),
        started_at=None,
        finished_at=None,
        deadline_at=None if deadline is None else moment(deadline),
        expires_at=None,
        tags=tuple(submission.tags),
        options=submission.options,
        error=None,
        timings=None,
        usage=None,
        idempotency_key=submission.idempotency_key,
        worker=None,
        keep=submission.keep,
    )


def ended_job(job: Job, reply: Reply) -> Job:
    """What the row of a job says after the end that `reply` tells of."""
    return replace(
        job,
        state=State(reply.state),
        items_failed=reply.items_failed,
        device_ms=reply.device_ms,
        attempt=reply.attempt,
        fence=reply.fence,
        version=reply.version,
        started_at=moment(reply.started),
        finished_at=moment(reply.finished),
        expires_at=moment(reply.expires),
        error=reply.error,
        timings=reply.timings,
        usage=reply.usage,
        worker=reply.worker,
    )


def moment(seconds: float) -> datetime:
    """Unix seconds as a UTC time."""
    return datetime.fromtimestamp(seconds, UTC)
