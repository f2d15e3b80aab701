"""What works beside the device keeps no one out who needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.conftest import Caller, Running
from tests.acceptance.fakes import fake

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


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    return start_stack(models={"acme/parser": PARSER, "acme/encoder": fake()})


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
