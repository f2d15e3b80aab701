"""Callers whose jobs share batches: each gets its own result, its own error, and its own time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

from tests.acceptance.fakes import timed as fake

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]

CALLERS = 64
WAVE = 60
BATCH_MS = 100.0


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    poison = [{"kind": "error", "when_text": "POISON"}]
    return start_stack(
        batch_items=7,
        lanes=1,
        models={
            "many": fake(2.0),
            "touchy": fake(1.0, load_seconds=1.0, faults=poison),
            "steady": fake(BATCH_MS),
        },
    )


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


def work(someone: Any, model: str, items: int) -> dict[str, Any]:
    """What the model's batches came to, once the worker's beat tells of so many items."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for worker in someone.client.get("/v1/residency", params={"model": model}).json()["data"]:
            found = worker["models"][0]["work"]
            if found and found["items"] >= items:
                return dict(found)
    pytest.fail(f"no beat told of {items} items of {model}")


def test_an_error_of_one_caller_in_a_batch_is_no_others(someone: Any) -> None:
    """All seven wait for the load, so that they are one batch; the third is undone by its text."""
    texts = [f"text {n}" if n != 2 else "POISON" for n in range(7)]
    with ThreadPoolExecutor(7) as pool:
        answers = list(pool.map(lambda text: someone.post([text], "touchy", wait=30), texts))
    jobs = [answer.json() for answer in answers]
    assert [job["status"] for job in jobs] == ["succeeded"] * 2 + ["failed"] + ["succeeded"] * 4
    assert jobs[2]["error"]["code"] == "model_failed"
    assert {job["attempts"] for job in jobs} == {1}
    found = work(someone, "touchy", 7)
    assert (found["batches"], found["items"]) == (1, 7)


def test_each_of_many_callers_at_once_gets_the_vector_of_its_own_number(someone: Any) -> None:
    texts = [f"number {n}" for n in range(CALLERS)]
    together = someone.vectors(someone.end(someone.submit(texts, "many"))["id"])
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(lambda text: someone.post([text], "many", wait=30), texts))
    alone = np.array([answer.json()["result"]["items"][0]["dense"]["values"] for answer in answers])
    assert [len(answer.json()["result"]["items"]) for answer in answers] == [1] * CALLERS
    assert len(np.unique(together, axis=0)) == CALLERS
    np.testing.assert_allclose(alone, together, atol=1e-6)
    found = work(someone, "many", 2 * CALLERS)
    assert found["items"] / found["batches"] > 2


async def natively(client: httpx.AsyncClient, number: int) -> str:
    """How a job of the native API ended."""
    body = {"verb": "encode", "model": "steady", "items": [f"text {number}"]}
    answer = await client.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"})
    return str(answer.json()["status"])


async def as_openai(client: httpx.AsyncClient, number: int) -> str:
    """The same by OpenAI's route."""
    body = {"model": "steady", "input": f"text {number}"}
    answer = await client.post("/v1/embeddings", json=body)
    return "succeeded" if answer.status_code == 200 else answer.text


Ask = Callable[[httpx.AsyncClient, int], Awaitable[str]]


@pytest.mark.parametrize(
    ("ask", "leaving", "patience_s"), [(natively, WAVE, 0.9 * BATCH_MS / 1000), (as_openai, 200, 1.0)]
)
async def test_callers_that_give_up_do_not_slow_those_that_come_after(
    stack: Any, ask: Ask, leaving: int, patience_s: float
) -> None:
    """Waves of patient callers, with waves between them of callers that leave before their batches can have ended.

    Twice, since whatever else the machine does may slow a wave.
    """
    limits = httpx.Limits(max_connections=leaving, max_keepalive_connections=leaving)
    before, after = [], []
    async with stack.async_client(limits=limits) as client:
        await wave(ask, client, 7)
        before += [await wave(ask, client, WAVE)]
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await wave(ask, client, leaving, patience_s)
            after += [await wave(ask, client, WAVE)]
        before += [await wave(ask, client, WAVE)]
    assert {status for ended in before + after for status, _ in ended} == {"succeeded"}
    assert min(map(late, after)) <= 1.5 * max(map(late, before))


async def wave(ask: Ask, client: httpx.AsyncClient, count: int, patience_s: float = 30.0) -> list[tuple[str, float]]:
    """How the jobs of so many callers ended, and after how many seconds. Raises once all have ended if any gave up."""

    async def call(number: int) -> tuple[str, float]:
        began = time.monotonic()
        async with asyncio.timeout(patience_s):
            return await ask(client, number), time.monotonic() - began

    ended = await asyncio.gather(*(call(number) for number in range(count)), return_exceptions=True)
    found = [one for one in ended if isinstance(one, tuple)]
    for one in ended:
        if isinstance(one, BaseException):
            raise one
    return found


def late(ended: Sequence[tuple[str, float]]) -> float:
    """The 95th percentile of the seconds."""
    return sorted(seconds for _, seconds in ended)[int(0.95 * len(ended))]
