from __future__ import annotations

from typing import Any

import pytest

from roost.document_backfills import DocumentBackfills, content
from roost.errors import ConnectionFailed, NotFound
from roost.steps import Patience
from roost.wire import Broken
from tests.unit.roost.scripted import Server, broken, error, reply

PATIENT = Patience.of(60.0)


def backfill(status: str) -> dict[str, Any]:
    return {"id": "backfill_1", "status": status}


def calls(server: Server) -> DocumentBackfills[dict[str, Any], list[dict[str, Any]]]:
    return DocumentBackfills(server.run, PATIENT)


def test_a_backfill_is_created_once_though_the_answer_is_lost() -> None:
    server = Server(broken(), reply(backfill("validating"), status=201))

    found = calls(server).create({"path": "/srv/in"}, [{"step": "encode", "model": "m"}], name="nightly")

    assert found["id"] == "backfill_1"
    first, second = server.requests
    assert (first.method, first.path) == ("POST", "/v1/backfills")
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]


def test_waiting_ends_with_the_backfill_or_a_pause_or_the_time() -> None:
    assert (
        calls(Server(*(reply(backfill(one)) for one in ("in_progress", "completed")))).wait("b")["status"]
        == "completed"
    )
    assert calls(Server(reply(backfill("paused")))).wait("b")["status"] == "paused"
    late = Server(reply(backfill("in_progress"), at=1.0), reply(backfill("in_progress"), at=3.0))
    assert calls(late).wait("b", timeout=2.0)["status"] == "in_progress"
    assert len(late.requests) == 2


def test_documents_are_read_page_by_page() -> None:
    pages = [reply({"data": [{"number": n}], "last_number": n, "has_more": n < 3}) for n in (1, 3)]
    server = Server(*pages)

    assert calls(server).documents("b", state="failed") == [{"number": 1}, {"number": 3}]
    assert [request.params["after"] for request in server.requests] == ["0", "1"]


def test_changes_are_asked_for_by_their_names() -> None:
    for what in ("pause", "resume", "cancel"):
        server = Server(reply(backfill(what)))
        getattr(calls(server), what)("backfill_1")
        assert server.requests[0].path == f"/v1/backfills/backfill_1/{what}"
    with pytest.raises(NotFound):
        calls(Server(error(404, "backfill_not_found"))).get("none")


def test_a_download_goes_on_where_it_broke_off() -> None:
    server = Server(reply({"bytes": 6}), reply(), b"ab", b"c", broken(), reply(), b"abcd", b"ef")

    server.run(content("file-1", PATIENT))

    assert b"".join(server.given) == b"abcdef"


def test_a_download_that_never_goes_on_is_given_up() -> None:
    parts: list[Broken | object] = []
    for _ in range(10):
        parts += [reply(), broken()]
    server = Server(reply({"bytes": 6}), *parts)  # type: ignore[arg-type] # replies and breaks by turns

    with pytest.raises(ConnectionFailed):
        server.run(content("file-1", PATIENT))
