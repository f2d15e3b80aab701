"""What may be asked of Flower, and from where."""

from __future__ import annotations

import pytest

from api.flower import CrossSite, check_host, check_site, path_of
from tasks.settings import Settings

HERE = {"host": "roost.example:8080"}


@pytest.mark.parametrize(
    "path", ["", "tasks", "api/task/info/01a2-b", "worker/cpu@host.lan", "static/js/flower.js", "api/task/info/"]
)
def test_a_path_of_flowers_is_handed_on(path: str) -> None:
    assert path_of(path) == f"/flower/{path}"


OUT = ("..", "../v1/jobs", "a/../../v1", "a/..", ".", "./tasks", "...", "//evil", "/tasks", "a//b", "a\\..\\b", "a\0b")
ODD = ("%2e%2e/v1", "a%2fb", "a?b", "a#b", "a\r\nb", "tasks\n", "ünï", "a b")


@pytest.mark.parametrize("path", [*OUT, *ODD])
def test_a_path_that_may_lead_elsewhere_is_none(path: str) -> None:
    assert path_of(path) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://roost.example:8081"},
        {"origin": "https://evil.example", "sec-fetch-site": "none"},
    ],
)
def test_a_post_of_another_sites_page_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(CrossSite):
        check_site("POST", HERE | headers, "https://roost.public")
    check_site("GET", HERE | headers, "")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "same-origin", "origin": "http://ROOST.example:8080"},
        {"origin": "https://roost.public"},
    ],
)
def test_a_post_of_its_own_pages_or_of_a_program_goes_through(headers: dict[str, str]) -> None:
    check_site("POST", HERE | headers, "https://roost.public")


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "a.localhost"])
def test_without_keys_the_own_machine_is_let_in(host: str) -> None:
    check_host({"host": host})


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "", "10.0.0.1", "localhost.evil.example"])
def test_without_keys_no_other_name_of_this_machine_is(host: str) -> None:
    with pytest.raises(CrossSite):
        check_host({"host": host})


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        ({}, "http://127.0.0.1:5555"),
        ({"flower_host": "::1", "flower_port": 7}, "http://[::1]:7"),
        ({"flower_host": "0.0.0.0"}, "http://127.0.0.1:5555"),
        ({"flower_port": 0}, ""),
        ({"flower_url": "http://flower:5555", "flower_port": 0}, "http://flower:5555"),
    ],
)
def test_where_flower_is(settings: dict[str, object], base: str) -> None:
    assert Settings.model_validate(settings).flower_base == base


@pytest.mark.parametrize("url", ["flower:5555", "http://user:pw@flower", "http://flower/x", "ftp://flower"])
def test_what_is_no_place_of_flower(url: str) -> None:
    with pytest.raises(ValueError, match="http://host:port"):
        Settings(flower_url=url)
