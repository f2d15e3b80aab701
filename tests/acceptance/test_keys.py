"""A stack that asks for keys: made by the command, used by clients as they are, of tenants that are kept apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import openai
import pytest

from roost import Client
from roost.errors import RoostError
from tests.acceptance.conftest import Running
from tests.acceptance.fakes import fake, timed
from tests.acceptance.until import until

pytestmark = pytest.mark.slow

Roost = Callable[..., str]


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    return start_stack(
        auth="on", preload="acme/quick,acme/slow", models={"acme/quick": fake(), "acme/slow": timed(40.0)}
    )


@pytest.fixture
def roost(running: Running) -> Roost:
    def run(*words: str, key: str = "") -> str:
        environment = {**os.environ, "ROOST_DATABASE_URL": running.settings.database_url}
        environment |= {"ROOST_URL": running.url, "ROOST_API_KEY": key}
        command = [sys.executable, "-P", "-m", "deploy.cli", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_from_a_key_to_a_result_and_to_its_end(running: Running, roost: Roost) -> None:
    with Client(running.url) as nobody, pytest.raises(RoostError) as caught:
        nobody.encode("acme/quick", ["a"])
    assert caught.value.code == "key_missing"

    ours, theirs = roost("keys", "create", "--tenant", "one"), roost("keys", "create", "--tenant", "two")
    with Client(running.url, ours) as client, Client(running.url, theirs) as other:
        job = client.submit("encode", "acme/quick", ["a"])
        assert job.result().dense.shape == (1, 8)
        assert [found.id for found in client.jobs()] == [job.id]
        assert list(other.jobs()) == []
        with pytest.raises(RoostError) as caught:
            other.job(job.id)
        assert caught.value.code == "job_not_found"
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key=theirs, max_retries=0) as client_of_openai:
        assert len(client_of_openai.embeddings.create(model="acme/quick", input="b").data[0].embedding) == 8
    assert "acme/quick" in roost("usage", key=ours)

    roost("keys", "revoke", ours)

    def refused() -> bool:
        answer = running.client.get("/v1/jobs", headers={"X-API-Key": ours})
        return answer.status_code == 401 and answer.json()["error"]["code"] == "key_revoked"

    until(refused, 10)


def test_a_limit_of_a_tenant_is_held_in_the_stack_and_ends_with_its_jobs(running: Running, roost: Roost) -> None:
    key = roost("keys", "create", "--tenant", "bounded")
    roost("keys", "limit", "bounded", "open_jobs=2")
    headers = {"Authorization": f"Bearer {key}"}
    body = {"verb": "encode", "model": "acme/slow", "items": ["a"]}

    def refused() -> bool:
        answer = running.client.post("/v1/jobs", json=body, headers=headers)
        return answer.status_code == 429 and answer.json()["error"]["code"] == "too_many_jobs"

    until(refused, 20)
    until(lambda: running.client.post("/v1/jobs", json=body, headers=headers).status_code == 202, 20)
