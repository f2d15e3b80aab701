from __future__ import annotations

import pytest

from roost.errors import ConnectionFailed
from roost.steps import LONGEST_PAUSE_S, Patience, ask
from roost.wire import Broken, Reply, Request
from tests.unit.roost.scripted import Server, broken, error, reply

SAFE = Request("GET", "/v1/models")
UNSAFE = Request("POST", "/v1/jobs", again=False)


def asked(request: Request, *answers: Reply | Broken, patience: float | None = 60.0) -> tuple[Reply | None, Server]:
    server = Server(*answers)
    return server.run(ask(request, Patience.of(patience))), server


@pytest.mark.parametrize("first", [broken(), error(429), error(503), reply("busy", 502), reply("busy", 504)])
def test_what_is_safe_to_send_is_sent_again_until_it_is_answered(first: Reply | Broken) -> None:
    found, server = asked(SAFE, first, first, reply({"ok": True}))
    assert found is not None
    assert found.status == 200
    assert len(server.requests) == 3
    assert server.pauses == sorted(server.pauses)


def test_what_is_not_safe_is_not_sent_again_after_it_may_have_arrived() -> None:
    with pytest.raises(ConnectionFailed, match="It may have been taken in; it was not sent again"):
        asked(UNSAFE, broken())
    found, server = asked(UNSAFE, error(503))
    assert found is not None
    assert found.status == 503
    assert len(server.requests) == 1


def test_what_never_left_and_what_was_turned_away_is_sent_again_in_any_case() -> None:
    found, server = asked(UNSAFE, broken(unsent=True), error(429), reply({}))
    assert found is not None
    assert found.status == 200
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
def test_an_answer_is_an_answer(status: int) -> None:
    found, server = asked(SAFE, error(status))
    assert found is not None
    assert found.status == status
    assert server.pauses == []


def test_a_job_s_own_502_is_an_answer_and_a_proxy_s_is_not() -> None:
    found, _ = asked(SAFE, error(502, "model_load_failed"))
    assert found is not None
    assert found.status == 502


def test_retry_after_is_kept_to() -> None:
    busy = reply({"error": {"code": "overloaded", "message": "Later."}}, 429, retry_after="7")
    _, server = asked(SAFE, busy, reply({}))
    assert server.pauses == [7.0]


def test_pauses_grow_to_a_bound() -> None:
    _, server = asked(SAFE, *[broken()] * 12, reply({}), patience=1e9)
    assert server.pauses[0] < 1
    assert server.pauses[-1] == LONGEST_PAUSE_S


def test_patience_counts_from_the_first_failure_in_a_row() -> None:
    with pytest.raises(ConnectionFailed, match="for 10 s: connection reset"):
        asked(SAFE, broken(at=100.0), broken(at=105.0), broken(at=110.0), patience=10.0)
    found, _ = asked(SAFE, error(503, at=100.0), error(503, at=110.0), patience=10.0)
    assert found is not None
    assert found.status == 503


def test_a_server_that_was_never_there_is_told_soon_by_its_address_and_one_that_was_is_waited_for() -> None:
    def refused(at: float, *, unmet: bool) -> Broken:
        return Broken("refused", at, unsent=True, server="http://owl:81", unmet=unmet)

    with pytest.raises(ConnectionFailed, match="No answer from http://owl:81 for 5 s: refused"):
        asked(UNSAFE, refused(0.0, unmet=True), refused(5.0, unmet=True), patience=None)
    for unmet, patience in ((False, None), (True, 60.0)):
        found, _ = asked(UNSAFE, refused(0.0, unmet=unmet), refused(50.0, unmet=unmet), reply({}), patience=patience)
        assert found is not None
        assert found.status == 200
