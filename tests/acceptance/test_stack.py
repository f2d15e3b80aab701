"""The stack that the acceptance tests stand on: it serves, and each of its parts can be taken away and given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

FAKE = {"family": "fake", "tasks": {"encode": {"dims": 8}}, "parameters": 0, "max_length": 512}


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Any]) -> Any:
    return start_stack(models={"tests/small": FAKE})


def _encode(client: httpx.Client, text: str, wait: int = 30) -> dict[str, object]:
    body = {"verb": "encode", "model": "tests/small", "items": [text]}
    reply = client.post("/v1/jobs", json=body, headers={"Prefer": f"wait={wait}"})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def test_a_model_of_the_test_s_own_serves(running: Any) -> None:
    assert _encode(running.client, "a text")["status"] == "succeeded"


@pytest.mark.parametrize("name", ["api", "cpu", "chores", "beat", "feeder", "sender", "valkey", "postgres"])
def test_a_part_that_was_killed_serves_again_after_a_start(running: Any, name: str) -> None:
    part = running.part(name)
    part.kill()
    assert not part.alive

    part.start()

    assert _encode(running.client, f"after {name}")["status"] == "succeeded"


def test_a_second_api_serves_the_same_jobs(running: Any) -> None:
    job = _encode(running.client, "shared")

    url = running.add_api()

    assert httpx.get(f"{url}/v1/jobs/{job['id']}").json()["status"] == "succeeded"


def test_a_wiped_valkey_loses_no_finished_job(running: Any) -> None:
    job = _encode(running.client, "kept")

    running.wipe_valkey()

    assert running.client.get(f"/v1/jobs/{job['id']}").json()["status"] == "succeeded"
    assert _encode(running.client, "after the wipe")["status"] == "succeeded"
