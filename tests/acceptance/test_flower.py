"""What Flower shows of real jobs: how each one ended and how long it ran, and never a text."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from deploy.embedded.ports import chosen

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]
Shown = Callable[[str], dict[str, Any]]

SECRET = "the diagnosis of patient 4711"
ENDED = {"SUCCESS", "FAILURE", "REVOKED"}


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    fake = {"family": "fake", "tasks": {"encode": {"dims": 8}}, "parameters": 0, "max_length": 100_000}
    slow = {"cost": {"base": 0.0, "per_token": 100.0}, "load": {"dims": 8, "seconds_per_cost": 0.001}}
    touchy = {"load": {"dims": 8, "faults": [{"kind": "error", "when_text": "POISON"}]}}
    return start_stack(
        flower_port=chosen(0),
        events="on",
        lanes=1,
        batch_items=1,
        models={"slow": {**fake, **slow}, "touchy": {**fake, **touchy}},
    )


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


@pytest.fixture
def flower(stack: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.stack.urls["flower"], timeout=30) as client:
        yield client


@pytest.fixture
def shown(flower: httpx.Client) -> Shown:
    """What Flower tells of a job's task, once it has heard of its end."""

    def look(id_: str) -> dict[str, Any]:
        until = time.monotonic() + 30
        answer = flower.get(f"/api/task/info/{id_}")
        while answer.status_code == 404 or answer.json()["state"] not in ENDED:
            assert time.monotonic() < until, answer.text
            answer = flower.get(f"/api/task/info/{id_}")
        return dict(answer.json())

    return look


def test_a_job_that_succeeded_is_shown_with_its_runtime(someone: Any, shown: Shown) -> None:
    id_ = someone.submit(["word"], "slow")
    job = someone.end(id_)
    task = shown(id_)
    assert (task["name"], task["state"]) == ("roost.run", "SUCCESS")
    assert task["runtime"] == pytest.approx(job["timings"]["device_ms"] / 1000, abs=0.1)
    assert task["received"] <= task["started"] <= task["succeeded"]


def test_a_job_that_failed_is_shown_with_the_code_of_its_error(someone: Any, shown: Shown) -> None:
    id_ = someone.submit(["POISON"], "touchy")
    someone.end(id_)
    task = shown(id_)
    assert (task["state"], task["exception"]) == ("FAILURE", "model_failed")


def test_a_job_cancelled_in_a_workers_hands_is_shown_as_revoked(someone: Any, shown: Shown) -> None:
    running, waiting = someone.submit(["word " * 20], "slow"), someone.submit(["word"], "slow")
    with someone.client.stream("GET", f"/v1/jobs/{running}/events") as events:
        next(line for line in events.iter_lines() if line == "event: running")
    someone.client.post(f"/v1/jobs/{running}/cancel")
    assert shown(running)["state"] == "REVOKED"
    assert someone.end(waiting)["status"] == "succeeded"


@pytest.mark.parametrize("repeats", [1, 10_000], ids=["small", "large"])
def test_no_text_is_shown_of_a_job(someone: Any, flower: httpx.Client, shown: Shown, repeats: int) -> None:
    id_ = someone.submit([f"{SECRET} POISON " * repeats], "touchy")
    someone.end(id_)
    shown(id_)
    columns: dict[str, str | int] = {
        "draw": 1,
        "start": 0,
        "length": 100,
        "order[0][column]": 0,
        "columns[0][data]": "name",
    }
    pages = [
        flower.get(f"/task/{id_}"),
        flower.get(f"/api/task/info/{id_}"),
        flower.get("/api/tasks"),
        flower.get("/tasks/datatable", params=columns),
    ]
    assert {page.status_code for page in pages} == {200}
    hidden = base64.b64encode(SECRET.encode()).decode()[4:-4]
    assert not [page.url for page in pages if SECRET in page.text or hidden in page.text]
    assert max(len(page.content) for page in pages[:2]) < 50_000
