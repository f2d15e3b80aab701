"""The calls themselves, as steps: submit, wait, read results, follow events. `steps.py` says who carries them out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from roost import asking
from roost.asking import POLL_S, Asked
from roost.errors import JobFailed, StillRunning
from roost.following import Following
from roost.job_info import JobInfo
from roost.results import Result, items_of
from roost.steps import Give, Left, Patience, Pause, Steps, ask
from roost.wire import Reply, Request, checked, decoded, failure

LOOK_S = 1.0
"""How often it is looked at what has no way to wait for it."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A job that was taken in, with its result or failure if it ended within the wait.

    `replayed`: its key led to an older job.
    """

    job: JobInfo
    result: Result | None
    failure: JobFailed | None
    replayed: bool


def fetch(request: Request, patience: Patience) -> Steps[dict[str, Any]]:
    """The body of an answer that tells of no error."""
    return checked((yield from ask(request, patience)))


def listed(path: str, patience: Patience) -> Steps[list[dict[str, Any]]]:
    """The entries of an answer that is a list."""
    return list((yield from fetch(asking.get_json(path), patience))["data"])


def paged(
    path: str, params: Mapping[str, Any], most: int, page_size: int, patience: Patience
) -> Steps[list[dict[str, Any]]]:
    """The newest `most` entries of a list whose pages begin after the `last_id` of the one before."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while len(found) < most:
        asked = {**params, "limit": min(page_size, most - len(found)), "after": after}
        page = yield from fetch(asking.get_json(path, asked), patience)
        found += page["data"]
        after = page["last_id"]
        if not page["has_more"]:
            break
    return found


def look(job_id: str, patience: Patience) -> Steps[JobInfo]:
    """A job as it is now. Raises NotFound."""
    return JobInfo.of((yield from fetch(asking.get_job(job_id), patience)))


def text(path: str, patience: Patience) -> Steps[str]:
    """An answer that is plain text."""
    reply = yield from ask(asking.get_json(path), patience)
    if reply.status >= 400:
        raise failure(reply)
    return reply.body.decode("utf-8", "replace")


def begin(job: Asked, patience: Patience, wait_s: float = 0.0) -> Steps[Begun]:
    """Submit a job, and wait so long for its end."""
    reply = yield from ask(asking.post_job(job, wait_s), patience)
    body = checked(reply)
    told = body.pop("result", None)
    info = JobInfo.of(body)
    replayed = reply.headers.get("idempotent-replayed") == "true"
    if info.status == "succeeded" and told is not None:
        return Begun(info, Result.of(told, info), None, replayed)
    return Begun(info, None, _failure(info, told) if info.ended and info.status != "succeeded" else None, replayed)


def _failure(job: JobInfo, told: Mapping[str, Any] | None) -> JobFailed:
    error = job.error or {"code": job.status, "message": f"The job is {job.status}."}
    return JobFailed(error, state=job.status, job_id=job.id, items=items_of((told or {}).get("items")))


def submit(job: Asked, patience: Patience) -> Steps[JobInfo]:
    """Submit a job and come back at once with what was taken in."""
    return (yield from begin(job, patience)).job


def call(job: Asked, patience: Patience, now: float, timeout: float | None) -> Steps[Result]:
    """Submit a job and wait for its result, however often the connection is lost. Raises JobFailed, StillRunning."""
    begun = yield from begin(job, patience, POLL_S if timeout is None else min(POLL_S, timeout))
    if begun.failure is not None:
        raise begun.failure
    if begun.result is not None:
        return begun.result
    return (yield from finish(begun.job.id, patience, now, timeout, begun.job))


def finish(
    job_id: str, patience: Patience, now: float, timeout: float | None, known: JobInfo | None = None
) -> Steps[Result]:
    """Wait for a job's end and read its result. Raises JobFailed, StillRunning."""
    info = yield from wait(job_id, patience, now, timeout, known)
    return (yield from result(info.id, patience, info))


def wait(
    job_id: str, patience: Patience, now: float, timeout: float | None, known: JobInfo | None = None
) -> Steps[JobInfo]:
    """The job once it has ended. `now` is the driver's clock. Raises StillRunning."""
    until = None if timeout is None else now + timeout
    info = known
    while info is None or not info.ended:
        if info is not None and until is not None and now >= until:
            raise StillRunning(info)
        patient_s = POLL_S if until is None else max(0.0, min(POLL_S, until - now))
        reply = yield from ask(asking.get_job(job_id, patient_s), patience)
        now, info = reply.at, JobInfo.of(checked(reply))
    return info


def result(job_id: str, patience: Patience, job: JobInfo | None = None) -> Steps[Result]:
    """The result of a job that has ended. Raises JobFailed, or Conflict when it has not ended."""
    reply = yield from ask(asking.get_result(job_id), patience)
    if reply.status >= 400:
        raise _no_result(reply, job_id)
    return Result.of(checked(reply), job)


def _no_result(reply: Reply, job_id: str) -> Exception:
    """The job's own error where the answer has one, else that of the request."""
    error = failure(reply)
    if error.code == "unexpected_reply":
        return error
    body = decoded(reply)
    if "status" not in body:
        return error
    return JobFailed(body["error"], state=body["status"], job_id=job_id, items=items_of(body.get("items")))


def follow(job_id: str, patience: Patience) -> Steps[None]:
    """Give the job's events until its end, over any number of connections. Raises ConnectionFailed, NotFound."""
    following = Following(job_id, patience)
    while (event := (yield from following.next())) is not None:
        yield Give(event)


def stream(job: Asked, patience: Patience) -> Steps[None]:
    """Give a text as it is generated. The job is cancelled when the caller leaves first. Raises JobFailed."""
    info = yield from submit(job, patience)
    following = Following(info.id, patience)
    try:
        while (event := (yield from following.next())) is not None:
            if event.name == "delta":
                yield Give(event.text)
            elif event.ended and event.name != "succeeded":
                yield from result(info.id, patience)
    except Left:
        yield asking.post_change(info.id, "cancel")
        raise


def settled(path: str, states: Collection[str], timeout: float | None, patience: Patience) -> Steps[dict[str, Any]]:
    """What is at this path once its status is one of these; as it is after `timeout` seconds if that comes first."""
    until: float | None = None
    while True:
        reply = yield from ask(asking.get_json(path), patience)
        found = checked(reply)
        until = reply.at + timeout if until is None and timeout is not None else until
        if found["status"] in states or (until is not None and reply.at >= until):
            return found
        yield Pause(LOOK_S)


def pages(params: Mapping[str, Any], most: int | None, patience: Patience) -> Steps[None]:
    """Give the jobs of a list, newest first, page after page; at most so many."""
    cursor: str | None = None
    given = 0
    while most is None or given < most:
        size = 100 if most is None else min(100, most - given)
        page = yield from fetch(asking.get_json("/v1/jobs", {**params, "limit": size, "cursor": cursor}), patience)
        for body in page["data"]:
            yield Give(JobInfo.of(body))
            given += 1
        cursor = page.get("next_cursor")
        if not cursor:
            return


def change(job_id: str, what: str, patience: Patience) -> Steps[JobInfo]:
    """Cancel or retry a job. Raises Conflict where it is not in the state for that."""
    return JobInfo.of((yield from fetch(asking.post_change(job_id, what), patience)))
