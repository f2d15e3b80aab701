"""What `sie-sdk`'s users look at before their first call."""

from __future__ import annotations

import httpx
from sie_sdk import SIEClient


def test_the_service_is_ready(url: str) -> None:
    answer = httpx.get(f"{url}/readyz")
    assert (answer.status_code, answer.text) == (200, "ok")


def test_a_client_takes_the_address_of_the_stack(url: str) -> None:
    with SIEClient(url) as client:
        assert client.base_url == url
