from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import orjson

from api.render import ended_job, job_object, job_reply, queued_job
from api.schemas import JobObject
from catalog.terms import Lane, Verb
from tasks.jobs import State
from tasks.messages import Submission
from tasks.notices import Reply

ID = UUID("01a2b3c4-d5e6-7000-8000-000000000001")

SUBMISSION = Submission(
    id=ID, caller="default", verb=Verb.ENCODE, model="org/m:p", revision="abc", lane=Lane.BULK, bucket="s", priority=7,
    options={"normalize": False}, inputs=b"", lengths=[3, 4], costs=[1.0, 2.5], faults={1: {}}, created=1_700_000_000.5,
    deadline=1_700_000_010.5, retention_s=60, tags=["a"],
)  # fmt: skip

REPLY = Reply(
    id=ID, state="succeeded", version=3, attempt=2, fence=4, items_failed=1, error=None, device_ms=7.5,
    started=1_700_000_001.0, finished=1_700_000_002.0, expires=1_700_000_062.0, worker="w1", result=b"x",
    has_result=True, timings={"total_ms": 1500.0}, usage={"tokens": 7},
)  # fmt: skip


def test_a_new_job_is_shown_as_its_row_will_be() -> None:
    body = JobObject.model_validate_json(bytes(job_reply(queued_job(SUBMISSION), 202).body))
    assert (body.id, body.status, body.items, body.items_failed) == (str(ID), State.QUEUED, 2, 0)
    assert (body.cost.predicted_ms, body.cost.device_ms) == (3.5, None)
    assert body.created_at == datetime(2023, 11, 14, 22, 13, 20, 500000, UTC)
    assert body.deadline_at == datetime(2023, 11, 14, 22, 13, 30, 500000, UTC)
    assert (body.started_at, body.finished_at, body.expires_at, body.error) == (None, None, None, None)


def test_times_are_rfc_3339_in_utc() -> None:
    body = orjson.loads(job_reply(queued_job(SUBMISSION), 202).body)
    assert body["created_at"] == "2023-11-14T22:13:20.500000Z"


def test_a_reply_completes_the_job() -> None:
    job = ended_job(queued_job(SUBMISSION), REPLY)
    assert (job.state, job.version, job.attempt, job.fence, job.items_failed) == (State.SUCCEEDED, 3, 2, 4, 1)
    assert (job.device_ms, job.worker, job.usage) == (7.5, "w1", {"tokens": 7})
    assert job.expires_at == datetime(2023, 11, 14, 22, 14, 22, tzinfo=UTC)
    assert job.model == "org/m:p"


def test_a_job_names_its_paths() -> None:
    assert job_object(queued_job(SUBMISSION))["urls"] == {
        "self": f"/v1/jobs/{ID}",
        "result": f"/v1/jobs/{ID}/result",
        "events": f"/v1/jobs/{ID}/events",
        "cancel": f"/v1/jobs/{ID}/cancel",
        "retry": f"/v1/jobs/{ID}/retry",
    }
