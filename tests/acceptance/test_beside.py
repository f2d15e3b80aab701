"""What works beside the device keeps no one out who needs it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from roost import Client
from tests.acceptance.conftest import Caller, Running
from tests.acceptance.fakes import fake, timed
from tests.acceptance.until import until

PARSER: dict[str, Any] = {
    "family": "fake_parser",
    "tasks": {"extract": {"kinds": ["document"]}},
    "parameters": 0,
    "max_length": 64,
    "unit": "pages",
    # Long by its price, so that a few would fill a worker's hands.
    "cost": {"base": 0, "per_token": 30_000},
    "load": {"page_seconds": 3.0},
}

STEADY = timed() | {"cost": {"base": 1.0, "per_token": 5.0}}
"""Takes as long for each item as for the first."""

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    return start_stack(models={"acme/parser": PARSER, "acme/encoder": fake(), "acme/steady": STEADY})


def test_texts_are_answered_while_documents_are_read(running: Running, caller: Callable[[Running], Caller]) -> None:
    calls = caller(running)
    assert calls.post(["first"], "acme/encoder", wait=30).json()["status"] == "succeeded"
    documents = [calls.submit(["a page"], "acme/parser", verb="extract") for _ in range(10)]
    # One is being read, so that its model is there and the others come after it.
    calls.end(documents[0])
    for _ in range(5):
        assert calls.post(["a text"], "acme/encoder", wait=30).json()["status"] == "succeeded"
    states = [calls.job(id_)["status"] for id_ in documents]
    assert states.count("succeeded") < len(documents), "texts waited until all documents were read"
    ended = calls.ends(documents)
    assert {job["status"] for job in ended.values()} == {"succeeded"}


def test_a_backfill_starves_nobody_and_is_starved_by_nobody(running: Running) -> None:
    def line(number: int) -> dict[str, Any]:
        body = {"model": "acme/steady", "input": f"text {number}"}
        return {"custom_id": str(number), "method": "POST", "url": "/v1/embeddings", "body": body}

    with Client(running.url) as client:
        file = client.files.upload(b"\n".join(json.dumps(line(number)).encode() for number in range(1000)), "in.jsonl")
        batch = client.batches.create(file["id"], "/v1/embeddings")["id"]

        def done() -> int:
            return int(client.batches.get(batch)["request_counts"]["completed"])

        until(done, PATIENCE_S)
        for _ in range(20):
            client.encode("acme/steady", "a text")
        # In the order in which they came, all lines would have gone before the first call.
        assert done() < 500

        called, moved = threading.Semaphore(0), threading.Event()

        def load() -> None:
            # Of so many texts that some always wait while the next call is on its way.
            while not moved.is_set():
                client.encode("acme/steady", ["a text"] * 32)
                called.release()

        with ThreadPoolExecutor(4) as callers:
            calling = [callers.submit(load) for _ in range(4)]
            try:
                # What ended before this load is counted by then.
                assert all(called.acquire(timeout=PATIENCE_S) for _ in range(8))
                before = done()
                until(lambda: done() >= before + 20, PATIENCE_S)
            finally:
                moved.set()
        assert [one.result() for one in calling] == [None] * 4
        client.batches.cancel(batch)
        assert client.batches.wait(batch, timeout=PATIENCE_S)["status"] == "cancelled"
