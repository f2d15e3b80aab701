"""What a page of another site has a browser send, and what this machine is called."""

from __future__ import annotations

import pytest

from api.sites import CrossSite, check_host, check_site

HERE = {"host": "roost.example:8080"}


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://roost.example:8081"},
        {"origin": "http://["},
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
        {"sec-fetch-site": "same-origin", "origin": "http://before.a.proxy"},
        {"sec-fetch-site": "none"},
        {"origin": "https://roost.public"},
    ],
)
def test_a_post_of_its_own_pages_or_of_a_program_goes_through(headers: dict[str, str]) -> None:
    check_site("POST", HERE | headers, "https://roost.public")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "a.localhost", "LOCALHOST."]
)
def test_without_keys_the_own_machine_is_let_in(host: str) -> None:
    check_host({"host": host})


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "", "10.0.0.1", "localhost.evil.example", "[", "a b", "\xe9"]
)
def test_without_keys_no_other_name_of_this_machine_is(host: str) -> None:
    with pytest.raises(CrossSite):
        check_host({"host": host})
