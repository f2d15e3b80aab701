from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from tasks.errors import InvalidRequest
from tasks.webhooks.requests import EndpointChange, NewEndpoint, NewSecret, Range, given, parsed
from tasks.webhooks.schedule import State

URL = "https://hooks.example.org/in"
AT = "2026-05-01T08:00:00Z"


def refused(body: Any, model: type[BaseModel]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parsed(body, model)
    return caught.value


def test_an_endpoint_asks_for_all_events_unless_it_says_otherwise() -> None:
    made = parsed({"url": URL}, NewEndpoint)
    assert (made.events, made.description, made.inline, made.secret) == (["*"], "", False, None)


@pytest.mark.parametrize("body", [None, [], "x", 3])
@pytest.mark.parametrize("model", [NewEndpoint, EndpointChange, NewSecret, Range])
def test_a_body_that_is_no_object_is_refused(body: object, model: type[BaseModel]) -> None:
    assert "JSON object" in refused(body, model).message


@pytest.mark.parametrize(
    ("model", "body", "param"),
    [
        (NewEndpoint, {}, "url"),
        (NewEndpoint, {"url": ""}, "url"),
        (NewEndpoint, {"url": URL, "events": "*"}, "events"),
        (NewEndpoint, {"url": URL, "events": ["*"] * 100}, "events"),
        (NewEndpoint, {"url": URL, "events": [3]}, "events[0]"),
        (NewEndpoint, {"url": URL, "description": "x" * 501}, "description"),
        (NewEndpoint, {"url": URL, "inline": 1}, "inline"),
        (NewEndpoint, {"url": URL, "secret": ""}, "secret"),
        (Range, {}, "since"),
        (Range, {"since": 5}, "since"),
        (Range, {"since": "2026-05-01T08:00:00"}, "since"),
        (Range, {"since": AT, "until": AT}, "until"),
        (Range, {"since": AT, "until": "2026-05-01T09:00:00+02:00"}, "until"),
        (Range, {"since": AT, "status": []}, "status"),
        (Range, {"since": AT, "status": ["sent"]}, "status[0]"),
    ],
)
def test_a_wrong_field_is_named(model: type[BaseModel], body: Any, param: str) -> None:
    error = refused(body, model)
    assert error.param == param
    assert repr(param) in error.message


@pytest.mark.parametrize(
    ("model", "body", "said"),
    [
        (NewEndpoint, {"url": URL, "event": []}, "'events'"),
        (EndpointChange, {"inlne": True}, "'inline'"),
        (EndpointChange, {"secret": "whsec_mine"}, "/rotate"),
        (NewSecret, {"secrt": "whsec_mine"}, "'secret'"),
        (Range, {"form": AT}, "Unknown field 'form'"),
    ],
)
def test_an_unknown_field_is_told_with_what_was_meant(model: type[BaseModel], body: Any, said: str) -> None:
    error = refused(body, model)
    assert said in error.message
    assert "mine" not in error.message


def test_a_change_is_what_it_names() -> None:
    assert given(parsed({"url": URL, "inline": False}, EndpointChange)) == {"url": URL, "inline": False}
    with pytest.raises(InvalidRequest, match="at least one field"):
        given(parsed({}, EndpointChange))
    with pytest.raises(InvalidRequest, match="'url' must not be null"):
        given(parsed({"url": None}, EndpointChange))


def test_a_range_has_its_states_and_its_end_or_none() -> None:
    found = parsed({"since": AT, "status": ["failed", "delivered"]}, Range)
    assert found.since == datetime(2026, 5, 1, 8, tzinfo=UTC)
    assert (found.until, found.status) == (None, [State.FAILED, State.DELIVERED])
