from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.compat.batchable import ENDPOINTS
from api.compat.dialect import Failure
from api.compat.endpoints import Endpoint
from api.feeding import shaping
from api.feeding.shaping import Stop
from catalog.terms import Lane, Verb
from tasks.batches import Batch, Status, line_job
from tasks.errors import InvalidRequest, TextTooLong
from tasks.lines import Line
from tasks.messages import Submission
from tasks.prepare import job_id
from tests.unit.api.compat.ends import ended

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def batch() -> Batch:
    id_ = job_id(NOW.timestamp())
    return Batch(
        id=id_, caller="default", status=Status.IN_PROGRESS, endpoint="/v1/encode", completion_window="24h",
        input_file=id_, labels=None, model=None, output_expires_s=3600, folder="batches/x", created_at=NOW,
        expires_at=NOW + timedelta(days=1), in_progress_at=NOW, finalizing_at=None, cancelling_at=None, ended_at=None,
        progress_at=None, total=1, completed=0, failed=0, fed=0, input_tokens=0, output_tokens=0, errors=None,
        output_file=None, error_file=None,
    )  # fmt: skip


def line(**body: Any) -> Line:
    return Line(3, "mine", {"model": "roost/fake", "items": ["a"], **body})


def read(shaped: shaping.Shaped) -> dict[str, Any]:
    assert shaped.data.endswith(b"\n")
    assert shaped.data.count(b"\n") == 1
    found: dict[str, Any] = json.loads(shaped.data)
    return found


ENCODE = ENDPOINTS["/v1/encode"]


def test_a_line_is_bulk_work_with_the_tag_of_its_batch(batch: Batch) -> None:
    asked = shaping.asked_for(batch, ENCODE, line(lane="interactive", tags=["own"]))

    assert asked.raw["verb"] == "encode"
    assert asked.raw["lane"] == "bulk"
    assert asked.raw["tags"] == ["own", f"batch:batch_{batch.id.hex}"]


def test_tags_of_the_wrong_form_are_left_for_the_door_to_refuse(batch: Batch) -> None:
    assert shaping.asked_for(batch, ENCODE, line(tags="own")).raw["tags"] == "own"


@pytest.mark.parametrize(("body", "param"), [({"stream": True}, "stream"), ({"verb": "score"}, "verb")])
def test_what_a_batch_cannot_do_is_refused(batch: Batch, body: Mapping[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        shaping.asked_for(batch, ENCODE, line(**body))
    assert refused.value.param == param


@pytest.mark.parametrize(("own", "found"), [(None, 86_400), (60, 60), (10 * 86_400, 86_400)])
def test_a_job_is_wanted_until_the_window_closes_at_the_latest(batch: Batch, own: float | None, found: float) -> None:
    began = NOW.timestamp()
    job = Submission(
        id=job_id(began), caller="default", verb=Verb.ENCODE, model="m", revision=None, lane=Lane.BULK, bucket="xs",
        priority=5, options={}, inputs=b"", lengths=[1], costs=[1.0], faults={}, created=began,
        deadline=None if own is None else began + own, retention_s=60,
    )  # fmt: skip

    sent = shaping.as_line(job, batch, 3)

    assert sent.id == line_job(batch.id, 3)
    assert sent.deadline == began + found
    assert began + sent.retention_s > batch.expires_at.timestamp() + 86_400


def test_a_job_that_succeeded_is_a_line_of_the_output(batch: Batch) -> None:
    vector = {"dims": 2, "dtype": "float32", "values": b"\0\0\x80?\0\0\0@"}
    shaped = shaping.succeeded(batch, line(), ENCODE, ended("encode", [{"dense": vector}], usage={"tokens": 1}))

    found = read(shaped)
    assert shaped.ok
    assert (found["custom_id"], found["error"], found["response"]["status_code"]) == ("mine", None, 200)
    assert found["response"]["request_id"] == str(line_job(batch.id, 3))
    assert found["response"]["body"]["items"][0]["dense"]["values"] == [1.0, 2.0]


@pytest.mark.parametrize("mark", ["\x85", "\u2028", "\u2029", "\n", "\x0b", "\x0c", "\x1e", "\r"])
def test_no_reader_takes_a_text_in_a_line_for_two_lines(batch: Batch, mark: str) -> None:
    endpoint = replace(ENCODE, to_reply=lambda *_: {"text": f"one{mark}two\u00e9\u2027"})
    shaped = shaping.succeeded(batch, line(), endpoint, ended("encode", [{}]))

    assert len(shaped.data.decode().splitlines()) == 1
    assert read(shaped)["response"]["body"] == {"text": f"one{mark}two\u00e9\u2027"}


def test_a_reply_that_cannot_be_made_is_an_error_line(batch: Batch) -> None:
    def refuse(*_: object) -> dict[str, Any]:
        raise TextTooLong(param="input[0]")

    endpoint: Endpoint = replace(ENCODE, to_reply=refuse)
    shaped = shaping.succeeded(batch, line(), endpoint, ended("encode", [{}]))

    response = read(shaped)["response"]
    assert not shaped.ok
    assert response["status_code"] == 400
    assert (response["body"]["error"]["code"], response["body"]["error"]["param"]) == (
        "context_length_exceeded",
        "input[0]",
    )


def test_a_refused_line_has_the_error_of_the_call(batch: Batch) -> None:
    shaped = shaping.failed(batch, line(), Failure("model_not_found", "No such model.", "model", False, 404))

    found = read(shaped)
    assert not shaped.ok
    assert (found["error"], found["response"]["status_code"]) == (None, 404)
    assert found["response"]["body"]["error"]["message"] == "No such model."


@pytest.mark.parametrize(("stop", "code"), [(Stop.CANCELLED, "batch_cancelled"), (Stop.EXPIRED, "batch_expired")])
def test_a_line_that_was_not_done_says_why(batch: Batch, stop: Stop, code: str) -> None:
    found = read(shaping.stopped(batch, line(), stop))

    assert (found["response"], found["error"]["code"]) == (None, code)


def test_every_endpoint_has_the_path_that_it_is_named_by() -> None:
    assert {path: endpoint.path for path, endpoint in ENDPOINTS.items()} == {path: path for path in ENDPOINTS}
    assert {"/v1/embeddings", "/v1/chat/completions", "/v1/completions", "/v1/responses"} <= ENDPOINTS.keys()
    assert {"/v1/rerank", "/v1/encode", "/v1/score", "/v1/extract", "/v1/generate"} <= ENDPOINTS.keys()


def test_a_batch_that_does_not_move_is_stalled(batch: Batch) -> None:
    assert not batch.stalled(NOW + timedelta(minutes=4))
    assert batch.stalled(NOW + timedelta(minutes=6))
    assert not replace(batch, progress_at=NOW + timedelta(minutes=5)).stalled(NOW + timedelta(minutes=6))
    assert not replace(batch, status=Status.COMPLETED).stalled(NOW + timedelta(days=1))
