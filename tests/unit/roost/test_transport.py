from __future__ import annotations

import httpx
import pytest

from roost.errors import RequestRefused
from roost.transport import Line, address, built, options_of
from roost.wire import Request


def test_the_address_is_what_is_given_or_the_environment_or_this_machine() -> None:
    there = {"ROOST_URL": "http://there:1/", "ROOST_API_KEY": "k"}
    assert (address("http://here:2", None, 1.0, there).url, address(None, None, 1.0, there).url) == (
        "http://here:2",
        "http://there:1",
    )
    assert address(None, None, 1.0, {}).url == "http://127.0.0.1:8080"
    assert (address(None, "mine", 1.0, there).api_key, address(None, None, 1.0, there).api_key) == ("mine", "k")


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "http://host:port"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(RequestRefused, match="http://host:port"):
        address(url, None, 1.0, {})


def test_a_long_poll_is_waited_for_and_a_silent_server_is_not() -> None:
    where = address("http://h", "key", 5.0, {})
    with httpx.Client(**options_of(where, 1)) as client:
        long = built(client, Request("GET", "/v1/jobs/j", {"wait": "30"}, wait_s=30.0), where)
        assert long.extensions["timeout"]["read"] == 35.0
        assert long.extensions["timeout"]["connect"] == 5.0
        assert str(long.url) == "http://h/v1/jobs/j?wait=30"
        assert long.headers["Authorization"] == "Bearer key"


@pytest.mark.parametrize(
    ("error", "unsent"),
    [
        (httpx.ConnectError("refused"), True),
        (httpx.ConnectTimeout("late"), True),
        (httpx.ReadError("reset"), False),
        (httpx.ReadTimeout(""), False),
        (httpx.RemoteProtocolError("disconnected"), False),
    ],
)
def test_only_what_never_connected_is_known_to_be_unsent(error: Exception, unsent: bool) -> None:
    found = Line(address("http://h", None, 5.0, {})).broken(error)
    assert found.unsent is unsent
    assert found.reason


def test_what_broke_names_the_server_without_its_password_and_whether_it_was_ever_met() -> None:
    line = Line(address("http://ada:secret@owl:81/roost/", None, 5.0, {}))
    refused = httpx.ConnectError("refused")
    assert line.broken(refused).server == "http://owl:81/roost"
    assert line.broken(refused).unmet
    line.reply(httpx.Response(503), b"")
    assert not line.broken(refused).unmet
