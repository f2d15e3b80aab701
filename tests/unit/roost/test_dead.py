from __future__ import annotations

from typing import Any

import pytest

from roost.dead import DeadLetters
from roost.errors import Overloaded
from roost.steps import Patience
from tests.unit.roost.scripted import Server, broken, error, reply

Object = dict[str, Any]


def calls(server: Server) -> DeadLetters[Object, list[Object]]:
    return DeadLetters(server.run, Patience.of(0.0))


def test_groups_are_asked_for_by_the_filters_that_are_named() -> None:
    server = Server(reply({"data": [{"code": "x"}]}))
    assert calls(server).groups(code="x", model=None) == [{"code": "x"}]
    assert server.paths == ["GET /v1/dead"]
    assert server.requests[0].params == {"code": "x"}


@pytest.mark.parametrize(
    ("given", "named", "body"),
    [
        ([], {}, {}),
        ([["a", "b"]], {}, {"ids": ["a", "b"]}),
        ([], {"after": "a"}, {"after": "a"}),
        ([], {"killers": True, "limit": 5, "code": "x", "lane": None}, {"killers": True, "limit": 5, "code": "x"}),
    ],
)
def test_what_is_tried_again_is_named(given: list[Any], named: dict[str, Any], body: Object) -> None:
    server = Server(reply({"redriven": 0}))
    assert calls(server).redrive(*given, **named) == {"redriven": 0}
    assert (server.paths, list(server.sent)) == (["POST /v1/dead/redrive"], [body])


def test_it_is_asked_again_after_a_lost_connection_and_a_limit_is_told() -> None:
    server = Server(broken(), reply({"redriven": 1}))
    assert DeadLetters(server.run, Patience.of(60.0)).redrive() == {"redriven": 1}
    with pytest.raises(Overloaded):
        calls(Server(error(429, "too_many_jobs"))).redrive()
