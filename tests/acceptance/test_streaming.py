"""A text comes as it is generated, and all of it before the job's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.acceptance.conftest import Running

GENERATOR = {
    "family": "fake_generator",
    "tasks": {"generate": {"max_new_tokens": 12}},
    "parameters": 0,
    "max_length": 4096,
    "load": {"step_seconds": 0.05},
}


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    return start_stack(models={"acme/writer": GENERATOR})


def submit(http: httpx.Client, **options: Any) -> dict[str, Any]:
    body = {"verb": "generate", "model": "acme/writer", "items": ["one two three", "four"], "options": options}
    reply = http.post("/v1/jobs", json=body)
    assert reply.status_code == 202, reply.text
    found: dict[str, Any] = reply.json()
    return found


def events(http: httpx.Client, job: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    with http.stream("GET", job["urls"]["events"]) as response:
        name = ""
        for line in response.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, orjson.loads(value)


def test_deltas_come_while_the_job_runs_and_make_up_its_texts(running: Running) -> None:
    http = running.client
    job = submit(http, stream=True)
    told: dict[int, str] = {0: "", 1: ""}
    names = []
    for name, data in events(http, job):
        names.append(name)
        if name == "delta":
            assert data["start"] == len(told[data["item"]])
            told[data["item"]] += data["text"]
    rows = http.get(job["urls"]["result"]).json()["items"]
    assert [told[0], told[1]] == [row["text"] for row in rows]
    assert names[-1] == "succeeded"
    assert names.count("delta") >= 6, "the texts came in one piece, not as they were made"


def test_who_comes_late_gets_all_of_it(running: Running) -> None:
    http = running.client
    job = submit(http, stream=True)
    assert http.get(job["urls"]["self"], params={"wait": 20}).json()["status"] == "succeeded"
    told = "".join(data["text"] for name, data in events(http, job) if name == "delta" and data["item"] == 0)
    assert told == http.get(job["urls"]["result"]).json()["items"][0]["text"]


def test_a_job_that_does_not_ask_has_no_deltas(running: Running) -> None:
    http = running.client
    job = submit(http)
    assert "delta" not in [name for name, _ in events(http, job)]


def test_a_cancelled_text_ends_with_its_job(running: Running) -> None:
    http = running.client
    job = submit(http, stream=True, max_tokens=2000)
    names = []
    for name, _ in events(http, job):
        names.append(name)
        if names.count("delta") == 3:
            assert http.post(job["urls"]["cancel"]).status_code == 200
    assert names[-1] == "cancelled"
