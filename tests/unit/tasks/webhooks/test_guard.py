from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

import pytest

from tasks.errors import UrlRefused
from tasks.settings import Settings
from tasks.webhooks.guard import Guard, as_address
from tests.unit.tasks.webhooks.spellings import GOOD, REFUSED

GUARD = Guard()
OPEN = Guard.of("", http=True)
INSIDERS = Guard.of("10.1.0.0/16, hooks.lan, *.svc.cluster.local, localhost, 127.0.0.1, fd00:1::/64", http=False)


def refused(url: str, guard: Guard = GUARD) -> str:
    with pytest.raises(UrlRefused) as caught:
        guard.check(url, "webhook.url")
    assert caught.value.param == "webhook.url"
    return caught.value.message


@pytest.mark.parametrize("url", REFUSED, ids=ascii)
def test_the_inside_is_refused_however_it_is_written(url: str) -> None:
    message = refused(url)

    assert message.startswith("'webhook.url' ")
    assert message.isascii()
    assert url not in message or len(url) < len("https://")


@pytest.mark.parametrize("url", [url for url in REFUSED if "http:" not in url.lower()], ids=ascii)
def test_http_opens_nothing_else(url: str) -> None:
    refused(url.replace("https:", "http:"), OPEN)


@pytest.mark.parametrize(("url", "opened"), GOOD.items(), ids=ascii)
def test_the_outside_is_opened_in_one_spelling(url: str, opened: str) -> None:
    target = GUARD.check(url)

    assert target.url == opened
    assert GUARD.check(target.url) == target


def test_there_are_hundreds_of_spellings() -> None:
    assert len(set(REFUSED)) == len(REFUSED) >= 300
    assert len(GOOD) >= 50


def test_a_target_tells_what_is_connected_to_and_what_is_sent() -> None:
    target = GUARD.check("https://[2606:4700:4700::1111]:8443")

    assert (target.host, target.port, target.target) == ("2606:4700:4700::1111", 8443, "/")
    assert target.authority == "[2606:4700:4700::1111]:8443"
    assert target.address == IPv6Address("2606:4700:4700::1111")
    assert GUARD.check("https://example.com").address is None


def test_http_goes_where_the_operator_has_it_go() -> None:
    assert OPEN.check("http://example.com/x").url == "http://example.com/x"
    assert OPEN.check("http://example.com:80/").port == 80
    assert OPEN.check("http://example.com:443/").authority == "example.com:443"
    assert "http:// or https://" in refused("ftp://example.com/", OPEN)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.lan/x",
        "https://HOOKS.LAN.:8443/x",
        "http://a.svc.cluster.local/",
        "http://b.a.svc.cluster.local/",
        "http://localhost:8000/",
        "http://127.0.0.1:8000/",
        "http://10.1.2.3/",
        "http://[::ffff:10.1.2.3]/",
        "https://[fd00:1::5]/",
    ],
)
def test_named_insiders_are_let_through_by_http_too(url: str) -> None:
    assert INSIDERS.check(url).url


@pytest.mark.parametrize(
    "url",
    [
        "https://10.2.0.1/",
        "https://127.0.0.2/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://x.hooks.lan/",
        "https://svc.cluster.local/",
        "https://xsvc.cluster.local/",
        "https://a.localhost/",
        "https://[fd00:2::5]/",
        "http://example.com/",
        "http://user@hooks.lan/",
        "ftp://hooks.lan/",
    ],
)
def test_nobody_else_is(url: str) -> None:
    refused(url, INSIDERS)


@pytest.mark.parametrize(
    ("url", "setting"),
    [("https://10.1.2.3/", "ROOST_FETCH_ALLOW"), ("https://db.lan/", "ROOST_FETCH_ALLOW"),
     ("http://example.com/", "ROOST_FETCH_HTTP")],
)  # fmt: skip
def test_who_is_refused_is_told_what_would_let_it_through(url: str, setting: str) -> None:
    with pytest.raises(UrlRefused, match=f"whoever runs this server can allow it with {setting}"):
        Guard.of("", http=False, settings="ROOST_FETCH").check(url)


def test_a_named_host_may_have_any_address_and_others_none_of_the_inside() -> None:
    inside, outside = ip_address("192.168.1.1"), ip_address("8.8.8.8")

    assert INSIDERS.first_refusal("hooks.lan", [inside]) is None
    assert INSIDERS.first_refusal("example.com", [ip_address("10.1.9.9"), outside]) is None
    assert INSIDERS.first_refusal("example.com", [outside, inside]) == "its address is private"
    assert GUARD.first_refusal("example.com", [outside, as_address("fe80::1%eth0")]) == "its address is link-local"


@pytest.mark.parametrize(
    "value",
    [
        *(
            "http://hooks.lan",
            "hooks.lan:8080",
            "10.1.0.0/33",
            "300.1.1.1",
            "10.1",
            "0x7f.1",
            "a b",
            "*",
            "*.",
            "hooks..lan",
        ),
        *("-a.lan", "10.0.0.1/8", "::1%lo", "[::1]", "a.lan;b.lan", "user@hooks.lan", "hooks.lan/x", "x.*.lan"),
    ],
)
def test_a_wrong_entry_of_the_allow_list_is_named(value: str) -> None:
    with pytest.raises(ValueError, match="has ") as caught:
        Guard.of(f"good.lan, {value} ,10.1.0.0/16", http=False)

    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ["ROOST_WEBHOOK_ALLOW", "ROOST_FETCH_ALLOW"])
def test_a_wrong_allow_list_keeps_a_process_from_starting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "hooks.lan,https://hooks.lan")
    with pytest.raises(SystemExit, match=rf"{name}=.*'https://hooks\.lan', which is no entry"):
        Settings.from_environment()


def test_an_allow_list_is_read_as_it_is_meant() -> None:
    allowed = INSIDERS.allowed

    assert allowed.hosts == {"hooks.lan", "localhost"}
    assert allowed.domains == {"svc.cluster.local"}
    assert set(allowed.networks) == {ip_network(one) for one in ("10.1.0.0/16", "127.0.0.1/32", "fd00:1::/64")}
    assert Guard.of(" , ", http=False).allowed == Guard().allowed
