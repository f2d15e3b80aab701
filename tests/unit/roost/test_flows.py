from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from roost import flows
from roost.asking import Asked
from roost.errors import Conflict, JobFailed, NotFound, RequestRefused, StillRunning
from roost.job_info import JobInfo
from roost.steps import Patience
from tests.unit.roost.scripted import Server, broken, error, job, packed, reply

PATIENCE = Patience.of(60.0)
ASKED = Asked("encode", "acme/owl", ["a"], {"options": {}}, "k1")
ROW = {"dense": {"dims": 2, "dtype": "float32", "values": np.array([1, 2], np.float32).tobytes()}}
RESULT = {"id": "j1", "object": "result", "status": "succeeded", "model": "acme/owl", "items": [ROW], "usage": None}
ENDED = packed(job("succeeded", result=RESULT))
NOT_WELL = {"code": "worker_lost", "message": "Its worker was lost.", "retryable": True}


def call(server: Server, timeout: float | None = None, asked: Asked = ASKED) -> Any:
    return server.run(flows.call(asked, PATIENCE, 0.0, timeout))


def test_a_short_call_is_one_request_with_its_key() -> None:
    server = Server(ENDED)
    assert call(server).dense.tolist() == [[1, 2]]
    (request,) = server.requests
    assert request.headers["Idempotency-Key"] == "k1"
    assert request.headers["Prefer"].startswith("wait=")
    assert server.sent == [{"verb": "encode", "model": "acme/owl", "items": ["a"], "options": {}}]


def test_a_call_goes_on_over_lost_connections_and_long_waits() -> None:
    server = Server(
        broken(),
        packed(job("queued"), 202),
        reply(job("running")),
        broken(),
        reply(job("succeeded")),
        packed(RESULT),
    )
    found = call(server)
    assert found.dense.tolist() == [[1, 2]]
    assert found.job.status == "succeeded"
    assert server.paths == [
        *["POST /v1/jobs"] * 2,
        *["GET /v1/jobs/j1"] * 3,
        "GET /v1/jobs/j1/result",
    ]


def test_a_call_without_a_key_is_not_sent_again() -> None:
    server = Server(broken())
    with pytest.raises(Exception, match="not sent again"):
        call(server, asked=Asked("encode", "acme/owl", ["a"]))
    assert "Idempotency-Key" not in server.requests[0].headers


def test_a_job_that_failed_within_the_wait_raises_its_error_with_its_items() -> None:
    failed = RESULT | {"items": [{"error": NOT_WELL}]}
    with pytest.raises(JobFailed, match="Its worker was lost") as caught:
        call(Server(packed(job("failed", error=NOT_WELL, result=failed))))
    assert (caught.value.code, caught.value.retryable, caught.value.state) == ("worker_lost", True, "failed")
    assert caught.value.job_id == "j1"
    assert len(caught.value.items) == 1


def test_a_job_that_failed_later_raises_the_same() -> None:
    result = packed({"error": NOT_WELL | {"job_id": "j1"}, "id": "j1", "status": "failed", "items": None}, 500)
    with pytest.raises(JobFailed) as caught:
        call(Server(packed(job(), 202), reply(job("failed", error=NOT_WELL)), result))
    assert (caught.value.code, caught.value.state, caught.value.items) == ("worker_lost", "failed", [])


def test_a_cancelled_job_has_no_error_of_its_own_and_raises_all_the_same() -> None:
    with pytest.raises(JobFailed, match="cancelled") as caught:
        call(Server(packed(job("cancelled", result=None))))
    assert caught.value.code == "cancelled"


def test_a_refused_request_is_no_failed_job() -> None:
    with pytest.raises(RequestRefused) as caught:
        call(Server(error(422, "invalid_option", param="options.x")))
    assert caught.value.param == "options.x"


def test_a_wait_ends_in_time_and_tells_of_the_job() -> None:
    server = Server(reply(job("running"), at=4.0), reply(job("running"), at=10.0))
    with pytest.raises(StillRunning) as caught:
        server.run(flows.wait("j1", PATIENCE, 0.0, 10.0))
    assert caught.value.job.status == "running"
    assert isinstance(caught.value, TimeoutError)
    assert [request.params["wait"] for request in server.requests] == ["10.000", "6.000"]


def test_a_wait_of_no_seconds_looks_once() -> None:
    server = Server(reply(job("queued"), at=1.0))
    with pytest.raises(StillRunning):
        server.run(flows.wait("j1", PATIENCE, 1.0, 0.0))


def test_a_job_that_is_known_to_have_ended_is_not_asked_for() -> None:
    server = Server()
    ended = JobInfo.of(job("failed"))
    assert server.run(flows.wait("j1", PATIENCE, 0.0, None, ended)) is ended


def test_a_result_that_is_not_there_yet_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        Server(error(409, "not_finished")).run(flows.result("j1", PATIENCE))


def test_pages_are_asked_for_as_they_are_needed() -> None:
    server = Server(
        reply({"data": [job(), job("running")], "next_cursor": "c1"}),
        reply({"data": [job("failed")], "next_cursor": "c2"}),
    )
    server.run(flows.pages({"tag": "t", "status": None}, 3, PATIENCE))
    assert [info.status for info in server.given] == ["queued", "running", "failed"]
    assert [dict(request.params) for request in server.requests] == [
        {"tag": "t", "limit": "3"},
        {"tag": "t", "limit": "1", "cursor": "c1"},
    ]


def test_the_last_page_is_the_last() -> None:
    server = Server(reply({"data": [job()], "next_cursor": None}))
    server.run(flows.pages({}, None, PATIENCE))
    assert len(server.given) == 1


def test_a_cancel_may_be_sent_twice_and_a_retry_may_not() -> None:
    server = Server(broken(), reply(job("cancelled")))
    assert server.run(flows.change("j1", "cancel", PATIENCE)) is not None
    with pytest.raises(Exception, match="not sent again"):
        Server(broken()).run(flows.change("j1", "retry", PATIENCE))


DELTA = b'event: delta\ndata: {"item": 0, "start": %d, "text": "%s"}\n\n'


def state(name: str, version: int) -> bytes:
    return (
        f"event: {name}\nid: {version}\ndata: {JobInfo.of(job(name)).fields}\n\n".replace("'", '"')
        .replace("None", "null")
        .encode()
    )


def test_events_go_on_where_they_broke_off() -> None:
    server = Server(
        reply(),
        state("queued", 1) + state("running", 2)[:10],
        broken(),
        broken(unsent=True),
        reply(),
        state("running", 2),
        broken(),
        reply(),
        state("succeeded", 3),
    )
    server.run(flows.follow("j1", PATIENCE))
    assert [event.name for event in server.given] == ["queued", "running", "succeeded"]
    assert [request.headers.get("Last-Event-ID") for request in server.requests] == [None, "1", "1", "2"]


def test_events_of_a_job_whose_last_was_told_are_over() -> None:
    server = Server(reply(status=204))
    server.run(flows.follow("j1", PATIENCE))
    assert server.given == []


def test_events_of_no_job_are_an_error() -> None:
    with pytest.raises(NotFound):
        Server(error(404)).run(flows.follow("none", PATIENCE))


def test_events_that_break_off_again_and_again_are_given_up() -> None:
    server = Server(reply(), broken(at=0.0), reply(at=0.0), broken(at=61.0))
    with pytest.raises(Exception, match="broke off again and again"):
        server.run(flows.follow("j1", PATIENCE))


def test_a_streamed_text_is_told_once_over_a_reconnect() -> None:
    server = Server(
        packed(job(), 202),
        reply(),
        DELTA % (0, b"one "),
        broken(),
        reply(),
        DELTA % (0, b"one two") + state("succeeded", 2),
    )
    server.run(flows.stream(ASKED, PATIENCE))
    assert server.given == ["one ", "two"]


def test_a_streamed_text_whose_job_fails_raises_its_error() -> None:
    result = packed({"error": NOT_WELL, "id": "j1", "status": "failed", "items": None}, 500)
    with pytest.raises(JobFailed, match="Its worker was lost"):
        Server(packed(job(), 202), reply(), state("failed", 2), result).run(flows.stream(ASKED, PATIENCE))


def test_a_stream_that_is_left_cancels_its_job() -> None:
    server = Server(packed(job(), 202), reply(), DELTA % (0, b"one"), reply(job("cancelled")))
    server.run(flows.stream(ASKED, PATIENCE), leave_after=1)
    assert server.paths[-1] == "POST /v1/jobs/j1/cancel"
