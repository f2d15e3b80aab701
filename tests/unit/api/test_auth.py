"""Of whom a key is asked, and where it is read from."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response

from api.app import create_app
from api.auth import Keys, _key_in
from api.route import KeyedRoute, is_keyed, needed
from catalog.loader import Catalog
from tasks.api_keys import KeyMissing, KeyUnknown, Scope
from tasks.service_settings import Auth
from tasks.settings import Settings, complaint

OPEN = {
    ("GET", "/healthz"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    # A link that proves by itself that it was handed out.
    ("GET", "/v1/jobs/{id}/chunks/{seq}"),
}


def asked(settings: Settings, server: Any = ("127.0.0.1", 8080), **headers: str) -> bool:
    found = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    keys = Keys(settings, None, lambda: 0.0)  # type: ignore[arg-type] # nothing is looked up
    return keys.asked_for({"type": "http", "server": server, "headers": found})


def test_a_server_for_its_own_machine_asks_nobody_there() -> None:
    assert not asked(Settings())
    assert not asked(Settings(host="localhost"), ("::1", 8080))


@pytest.mark.parametrize(
    "server", [("10.0.0.7", 80), ("192.168.1.2", 80), ("::ffff:10.0.0.1", 80), ("fe80::1%eth0", 1)]
)
def test_whoever_comes_from_elsewhere_is_asked_whatever_the_settings_say_of_the_host(server: tuple[str, int]) -> None:
    assert asked(Settings(), server)


@pytest.mark.parametrize("server", [("/run/roost.sock", None), None])
def test_whoever_comes_by_no_address_is_asked(server: Any) -> None:
    assert asked(Settings(), server)


@pytest.mark.parametrize("name", ["forwarded", "x_forwarded_for", "x_real_ip"])
def test_whoever_comes_through_a_proxy_is_asked(name: str) -> None:
    assert asked(Settings(), **{name: "203.0.113.9"})


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "10.0.0.7", "localhost.evil.example", "["])
def test_whoever_comes_by_a_name_that_others_can_give_is_asked(host: str) -> None:
    assert asked(Settings(), host=host)
    assert not asked(Settings(auth=Auth.OFF), host=host)


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "roost.localhost", ""])
def test_the_own_machine_by_its_own_names_is_not(host: str) -> None:
    assert not asked(Settings(), host=host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "roost.lan", "127.example.org"])
def test_beyond_the_own_machine_all_are_asked_and_off_is_refused(host: str) -> None:
    assert asked(Settings(host=host))
    with pytest.raises(ValidationError) as caught:
        Settings(host=host, auth=Auth.OFF)
    assert "roost keys create" in complaint(caught.value)


def test_on_and_off() -> None:
    assert asked(Settings(auth=Auth.ON))
    assert not asked(Settings(auth=Auth.OFF), ("10.0.0.7", 80), forwarded="for=1.2.3.4")


def test_a_key_is_read_from_three_places() -> None:
    basic = b64encode(b"anybody:roost_abc").decode()
    for headers in (
        {"authorization": "Bearer roost_abc"},
        {"authorization": "bearer  roost_abc "},
        {"x-api-key": "roost_abc"},
    ):
        assert _key_in(Headers(headers)) == "roost_abc"
    assert _key_in(Headers({"authorization": f"Basic {basic}"})) == "roost_abc"


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([], KeyMissing),
        ([("authorization", "Digest x")], KeyMissing),
        ([("authorization", "")], KeyMissing),
        ([("authorization", "Bearer a"), ("authorization", "Bearer b")], KeyMissing),
        ([("authorization", "Bearer a"), ("x-api-key", "a")], KeyMissing),
        ([("authorization", "Basic not base64")], KeyUnknown),
        ([("authorization", "Basic \xff\xfe")], KeyUnknown),
    ],
)
def test_what_is_no_key(headers: list[tuple[str, str]], error: type[Exception]) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    with pytest.raises(error):
        _key_in(Headers(raw=raw))


def test_every_route_asks_who_comes_but_those_that_tell_nothing() -> None:
    app = create_app(Settings(), Catalog([]))
    routes = [route for route in app.router.routes if isinstance(route, APIRoute)]
    assert all(isinstance(route, KeyedRoute) for route in routes)
    found = {
        (method, route.path) for route in routes for method in route.methods or () if needed(route, method) is None
    }
    assert found == OPEN
    ruled = {"/metrics", "/flower", "/flower/{path:path}"}
    assert {needed(route, "POST") for route in routes if route.path in ruled} == {Scope.ADMIN}
    assert len([route for route in app.router.routes if is_keyed(route)]) > len(routes)  # the sockets, too


def test_a_route_that_asks_nobody_is_no_part_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    from api.routes import submit

    async def careless() -> Response:
        return Response()

    monkeypatch.setattr(submit.router, "routes", [*submit.router.routes, APIRoute("/careless", careless)])
    with pytest.raises(TypeError, match="careless"):
        create_app(Settings(), Catalog([]))
