"""Every public call of the peer's client is answered or refused on purpose, and none is forgotten."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sie_sdk import SIEAsyncClient, SIEClient

VERBS = {
    "encode",
    "score",
    "extract",
    "generate",
    "stream_generate",
    "chat_completions",
    "stream_chat_completions",
    "responses",
}
SERVICE = {
    "list_models",
    "get_model",
    "get_capacity",
    "wait_for_capacity",
    "watch",
    "create_pool",
    "get_pool",
    "delete_pool",
    "estimate",
    "recommend",
}
PARTS = {
    "jobs": {"submit", "get", "list", "cancel", "results", "wait", "execute", "repair"},
    "files": {"upload", "create", "retrieve", "list", "list_page", "content", "delete"},
    "batches": {"create", "retrieve", "list", "list_page", "cancel"},
    "connections": {"add", "list", "revoke"},
}
LOCAL = {
    SIEClient: {"close", "base_url", "last_retry_count", "last_model_revision"},
    SIEAsyncClient: {"close", "base_url", "last_retry_count"},
}
"""What asks no server."""

REFUSED = {"connections"}
"""A control plane keeps the secrets of stores; no store is connected here, so there is none."""


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("client", LOCAL)
def test_every_call_is_known(client: type) -> None:
    made = client("http://127.0.0.1:1")
    assert public(client) == VERBS | SERVICE | LOCAL[client]
    assert public(made) - public(client) == set(PARTS)
    for part, calls in PARTS.items():
        assert public(getattr(made, part)) == calls, part


def test_every_call_has_a_test() -> None:
    said = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__))
    calls = [rf"\.{name}\(|\"{name}\"" for name in VERBS | SERVICE]
    calls += [rf"\.{part}\.{name}\(" for part in PARTS.keys() - REFUSED for name in PARTS[part]]
    assert [call for call in calls if re.search(call, said) is None] == []


def test_there_is_no_control_plane(url: str) -> None:
    from sie_sdk.client.errors import RequestError

    with SIEClient(url, control_plane_url=url, org="acme") as client:
        for call in (
            client.connections.list,
            lambda: client.connections.add("bucket", "s3", "secret"),
            lambda: client.connections.revoke("bucket"),
        ):
            with pytest.raises(RequestError) as caught:
                call()
            assert caught.value.status_code == 404
