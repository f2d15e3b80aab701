from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pytest

from catalog.terms import Lane, Verb
from tasks.backfills.backfill import Backfill
from tasks.backfills.backfill import Status as BackfillStatus
from tasks.batches import Batch
from tasks.batches import Status as BatchStatus
from tasks.errors import InvalidRequest
from tasks.jobs import FINAL, Job, State
from tasks.webhooks import events

AT = datetime(2026, 5, 1, 8, 0, 0, 120_000, tzinfo=UTC)
SECRET = "what a caller sent"
JOB = Job(
    id=UUID(int=1), caller="acme", verb=Verb.ENCODE, model="acme/quick", revision=None, lane=Lane.INTERACTIVE,
    priority=5, state=State.SUCCEEDED, items=2, items_failed=1, cost_ms=3.0, device_ms=2.0, attempt=1, fence=1,
    version=3, created_at=AT, started_at=AT, finished_at=AT, deadline_at=None, expires_at=None, tags=("nightly",),
    options={"instruction": SECRET}, error=None, timings={"queue_ms": 1.0}, usage={"tokens": 9},
    idempotency_key=SECRET, worker=SECRET,
)  # fmt: skip
BATCH = Batch(
    id=UUID(int=2), caller="acme", status=BatchStatus.COMPLETED, endpoint="/v1/embeddings", completion_window="24h",
    input_file=UUID(int=3), labels={"for": "corpus"}, model="acme/quick", output_expires_s=60, folder="f",
    created_at=AT, expires_at=AT, in_progress_at=AT, finalizing_at=AT, cancelling_at=None, ended_at=AT, progress_at=AT,
    total=10, completed=9, failed=1, fed=1, input_tokens=1, output_tokens=0, errors=[{"message": SECRET}],
    output_file=UUID(int=4), error_file=None,
)  # fmt: skip
BACKFILL = Backfill(
    id=UUID(int=5), caller="acme", status=BackfillStatus.COMPLETED, name="reports", plan={"steps": SECRET},
    recipe=b"", folder="f", created_at=AT, in_progress_at=AT, paused_at=None, finalizing_at=AT, cancelling_at=None,
    ended_at=AT, progress_at=AT, round=1, counted_from=0, total=4, completed=2, failed=1, skipped=1, rows=50,
    error=[{"message": SECRET}], output_file=UUID(int=6), report_file=UUID(int=7),
)  # fmt: skip


def test_every_end_of_a_job_is_an_event() -> None:
    assert {f"job.{state.value}" for state in FINAL} == set(events.OF_JOBS)


def test_a_job_is_told_of_by_what_became_of_it_and_where_to_read_more() -> None:
    assert events.of_job(JOB) == {
        "id": "00000000-0000-0000-0000-000000000001",
        "object": "job",
        "status": "succeeded",
        "verb": "encode",
        "model": "acme/quick",
        "lane": "interactive",
        "items": 2,
        "items_failed": 1,
        "tags": ["nightly"],
        "error": None,
        "usage": {"tokens": 9},
        "created_at": "2026-05-01T08:00:00.120000Z",
        "finished_at": "2026-05-01T08:00:00.120000Z",
        "urls": {
            "self": "/v1/jobs/00000000-0000-0000-0000-000000000001",
            "result": "/v1/jobs/00000000-0000-0000-0000-000000000001/result",
        },
    }


def test_an_error_is_told_by_its_code() -> None:
    error = {"code": "item_invalid", "message": SECRET, "retryable": False, "param": "items[0]"}
    failed = replace(JOB, state=State.FAILED, error=error, finished_at=None)
    told = events.of_job(failed)
    assert told["error"] == {"code": "item_invalid", "retryable": False}
    assert told["finished_at"] is None


@pytest.mark.parametrize(
    "data",
    [
        events.of_job(replace(JOB, state=State.FAILED, error={"code": "c", "message": SECRET})),
        events.of_batch(BATCH),
        events.of_backfill(BACKFILL),
    ],
    ids=lambda data: data["object"],
)
def test_an_event_has_nothing_that_a_caller_or_a_model_wrote(data: dict[str, Any]) -> None:
    assert SECRET not in events.payload("x.y", AT, data).decode()


def test_batches_and_backfills_are_told_of_with_their_files() -> None:
    batch = events.of_batch(BATCH)
    assert (batch["id"], batch["status"]) == (f"batch_{2:032x}", "completed")
    assert batch["request_counts"] == {"total": 10, "completed": 9, "failed": 1}
    assert (batch["output_file_id"], batch["error_file_id"]) == (f"file-{4:032x}", None)
    assert batch["urls"] == {
        "self": f"/v1/batches/batch_{2:032x}",
        "output": f"/v1/files/file-{4:032x}/content",
    }
    backfill = events.of_backfill(BACKFILL)
    assert (backfill["id"], backfill["rows"]) == (f"backfill_{5:032x}", 50)
    assert backfill["documents"] == {"total": 4, "completed": 2, "failed": 1, "skipped": 1}
    assert backfill["urls"] == {
        "self": f"/v1/backfills/backfill_{5:032x}",
        "output": f"/v1/files/file-{6:032x}/content",
        "report": f"/v1/files/file-{7:032x}/content",
    }


@pytest.mark.parametrize("base", ["https://roost.example.org", "https://roost.example.org/"])
def test_urls_are_whole_where_the_address_of_the_service_is_known(base: str) -> None:
    data = events.of_job(JOB)
    told = orjson.loads(events.payload("job.succeeded", AT, data, base=base))["data"]["urls"]
    assert told == {name: "https://roost.example.org" + path for name, path in data["urls"].items()}
    assert orjson.loads(events.payload("job.succeeded", AT, data))["data"]["urls"] == data["urls"]
    assert data == events.of_job(JOB)


def test_a_payload_is_its_type_its_time_and_its_data_with_the_result_if_it_goes_along() -> None:
    found = orjson.loads(events.payload("job.succeeded", AT, {"id": "1"}))
    assert found == {"type": "job.succeeded", "timestamp": "2026-05-01T08:00:00.120000Z", "data": {"id": "1"}}
    result = {"items": [{"dense": np.array([0.5, 0.1], np.float32)}]}
    with_it = orjson.loads(events.payload("job.succeeded", AT, {"id": "1"}, result=result))
    assert with_it["data"] == {"id": "1", "result": {"items": [{"dense": [0.5, 0.1]}]}}


def test_a_payload_is_the_same_bytes_in_each_attempt() -> None:
    data = {"name": "Zoë", "share": 0.1, "urls": {"self": "/x"}}
    assert len({events.payload("batch.failed", AT, data, base="https://r.example") for _ in range(3)}) == 1


@pytest.mark.parametrize(
    ("kind", "matched"),
    [
        ("job.failed", ["*", "job.*", "job.failed"]),
        ("batch.completed", ["*", "batch.*", "batch.completed"]),
        ("backfill.cancelled", ["*", "backfill.*", "backfill.cancelled"]),
    ],
)
def test_an_event_is_for_who_asked_for_it_for_its_kind_or_for_all(kind: str, matched: list[str]) -> None:
    assert events.matching(kind) == matched
    assert set(matched) <= set(events.PATTERNS)


def test_what_an_endpoint_asks_for_is_kept_once_and_in_order() -> None:
    assert events.checked_events(["job.failed", "batch.*", "job.failed"]) == ["job.failed", "batch.*"]
    assert events.checked_events(events.PATTERNS) == list(events.PATTERNS)


@pytest.mark.parametrize(
    ("asked", "param", "says"),
    [
        ([], "events", "at least one event"),
        (["job.done"], "events[0]", "is no event"),
        (["*", "job.suceeded"], "events[1]", "job.succeeded"),
        (["webhook.test"], "events[0]", "is no event"),
        (["webhook.*"], "events[0]", "is no event"),
        (["JOB.FAILED"], "events[0]", "job.failed"),
        ([""], "events[0]", "is no event"),
    ],
)
def test_what_is_no_event_is_refused_by_its_place(asked: list[str], param: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        events.checked_events(asked)
    assert caught.value.param == param
    assert says in caught.value.message
