from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from roost import asking
from roost.errors import ConnectionFailed, NotFound, RoostError
from roost.steps import Patience
from roost.webhooks import Webhooks
from tests.unit.roost.scripted import Server, broken, error, reply

URL = "https://hooks.example.org/in"
Object = dict[str, Any]


def calls(server: Server) -> Webhooks[Object, list[Object]]:
    return Webhooks(server.run, Patience.of(60.0))


def asked(what: str, *given: Any, **named: Any) -> tuple[str, Any]:
    """The route that a call asks, and the body that it sends."""
    server = Server(reply({}))
    getattr(calls(server), what)(*given, **named)
    return server.paths[0], next(iter(server.sent), None)


def test_an_endpoint_is_asked_for_by_what_was_named() -> None:
    plain = {"url": URL, "description": "", "inline": False}
    assert asked("create", URL) == ("POST /v1/webhooks", plain)
    more = {"events": ["job.*"], "description": "ours", "inline": True, "secret": "whsec_x"}
    assert asked("create", URL, **more) == ("POST /v1/webhooks", {"url": URL, **more})


@pytest.mark.parametrize("what", ["create", "rotate", "test"])
def test_what_would_be_done_twice_is_sent_once(what: str) -> None:
    with pytest.raises(ConnectionFailed, match="may have been taken in"):
        getattr(calls(Server(broken())), what)("https://x.org/")


@pytest.mark.parametrize("what", ["get", "enable", "disable", "delivery", "redeliver"])
def test_what_may_be_done_twice_is_sent_again(what: str) -> None:
    server = Server(broken(), reply({"id": "1"}))
    assert getattr(calls(server), what)("1") == {"id": "1"}
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("what", "given", "named", "route", "body"),
    [
        ("rotate", ["w/1"], {}, "POST /v1/webhooks/w%2F1/rotate", {}),
        ("rotate", ["w"], {"secret": "whsec_x"}, "POST /v1/webhooks/w/rotate", {"secret": "whsec_x"}),
        ("test", ["w"], {}, "POST /v1/webhooks/w/test", None),
        ("enable", ["w"], {}, "POST /v1/webhooks/w/enable", None),
        ("disable", ["w"], {}, "POST /v1/webhooks/w/disable", None),
        ("update", ["w"], {"inline": False}, "PATCH /v1/webhooks/w", {"inline": False}),
        ("delivery", ["msg_1"], {}, "GET /v1/deliveries/msg_1", None),
        ("redeliver", ["msg_1"], {}, "POST /v1/deliveries/msg_1/redeliver", None),
        ("own_secret", [], {}, "GET /v1/webhook-secret", None),
        ("rotate_own_secret", [], {}, "POST /v1/webhook-secret/rotate", {}),
    ],
)
def test_each_call_has_its_route(what: str, given: list[Any], named: Object, route: str, body: Any) -> None:
    assert asked(what, *given, **named) == (route, body)


def test_a_deleted_endpoint_is_told_though_the_answer_is_empty() -> None:
    server = Server(reply(status=204))
    assert calls(server).delete("w")["deleted"] is True
    assert server.paths == ["DELETE /v1/webhooks/w"]
    with pytest.raises(NotFound):
        calls(Server(error(404, "endpoint_not_found"))).delete("w")


def test_deliveries_are_listed_page_by_page_by_their_filters() -> None:
    pages = [reply({"data": [{"id": n}], "last_id": n, "has_more": n == "a"}) for n in ("a", "b")]
    server = Server(*pages)
    assert calls(server).deliveries(webhook="w", status="failed") == [{"id": "a"}, {"id": "b"}]
    assert dict(server.requests[1].params) == {"webhook": "w", "status": "failed", "limit": "99", "after": "a"}


def test_a_time_is_redelivered_in_the_form_of_the_api() -> None:
    since = datetime(2026, 5, 1, tzinfo=UTC)
    assert asked("redeliver_range", "w", since) == (
        "POST /v1/webhooks/w/redeliver",
        {"since": "2026-05-01T00:00:00+00:00"},
    )
    _, body = asked("redeliver_range", "w", "2026-05-01T00:00:00Z", since, status=["delivered"])
    assert body == {"since": "2026-05-01T00:00:00Z", "until": "2026-05-01T00:00:00+00:00", "status": ["delivered"]}
    _, body = asked("redeliver_range", "w", "2026-05-01T00:00:00Z", after="msg_1")
    assert body == {"since": "2026-05-01T00:00:00Z", "after": "msg_1"}


def test_a_refusal_is_an_error_of_the_client() -> None:
    with pytest.raises(RoostError, match="Do something else"):
        calls(Server(error(422, "url_refused", param="url"))).create("http://localhost/")


def test_a_job_names_its_receiver_by_a_url_or_by_more() -> None:
    assert asking.job_fields({"webhook": URL, "store": False}) == {
        "webhook": {"url": URL},
        "store": False,
        "options": {},
    }
    more = {"url": URL, "inline": True}
    assert asking.job_fields({"webhook": more})["webhook"] == more
