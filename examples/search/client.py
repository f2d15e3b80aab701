"""A caller of Roost in plain HTTP: the four calls that the demo needs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgpack
import numpy as np

ENDED = frozenset({"succeeded", "failed", "cancelled", "expired"})
Vectors = np.ndarray[Any, np.dtype[np.float32]]


class JobEndedOtherwiseError(Exception):
    """A job did not succeed, or not all of its items did."""


@dataclass(frozen=True)
class Answer:
    """A job, whether the call that made it was answered with the result, and how often it was asked for after."""

    job: Mapping[str, Any]
    at_once: bool
    polls: int = 0


class Roost:
    """Encodes texts with one model."""

    def __init__(self, url: str, model: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=180.0)
        self._model = model

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def submit(self, texts: Mapping[str, str], prefer: str, *, lane: str = "interactive") -> Answer:
        """Send a job: one item for each text, with its id. A result within `Prefer: wait` comes in the answer."""
        items = [{"id": name, "text": text} for name, text in texts.items()]
        body = {"verb": "encode", "model": self._model, "items": items, "lane": lane}
        reply = self._http.post("/v1/jobs", json=body, headers={"Prefer": prefer})
        reply.raise_for_status()
        return Answer(reply.json(), at_once=reply.status_code == httpx.codes.OK)

    def polled(self, answer: Answer, every_s: float = 0.25) -> Answer:
        """Ask again and again until the job has ended. `wait` on the same address would be quicker; see the README."""
        polls, job = 0, answer.job
        while job["status"] not in ENDED:
            time.sleep(every_s)
            job, polls = self._job(job["id"]), polls + 1
        return Answer(_succeeded(job), answer.at_once, polls)

    def waited(self, answer: Answer) -> Answer:
        """Ask once, and be answered when the job has ended."""
        job, polls = answer.job, 0
        while job["status"] not in ENDED:
            job, polls = self._job(job["id"], wait=30), polls + 1
        return Answer(_succeeded(job), answer.at_once, polls)

    def vectors(self, job_id: str) -> tuple[list[str], Vectors]:
        """The stored result as msgpack, which carries the bytes of the vectors: their ids and one row for each."""
        reply = self._http.get(f"/v1/jobs/{job_id}/result", headers={"Accept": "application/msgpack"})
        reply.raise_for_status()
        items = msgpack.unpackb(reply.content)["items"]
        rows = [np.frombuffer(item["dense"]["values"], dtype="<f4") for item in items]
        return [item["id"] for item in items], np.stack(rows)

    def _job(self, job_id: str, **query: int) -> Mapping[str, Any]:
        reply = self._http.get(f"/v1/jobs/{job_id}", params=query)
        reply.raise_for_status()
        job: Mapping[str, Any] = reply.json()
        return job


def vector_in(answer: Answer) -> Vectors:
    """The vector of the only item of a job that was answered with its result."""
    job = _succeeded(answer.job)
    return np.asarray(job["result"]["items"][0]["dense"]["values"], dtype="<f4")


def split(texts: Mapping[str, str], *counts: int) -> Sequence[dict[str, str]]:
    """The texts in parts of these sizes, the last with the rest."""
    names = list(texts)
    ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    return [{name: texts[name] for name in names[a:b]} for a, b in zip([0, *ends], [*ends, len(names)], strict=True)]


def _succeeded(job: Mapping[str, Any]) -> Mapping[str, Any]:
    if job["status"] != "succeeded" or job["items_failed"]:
        raise JobEndedOtherwiseError(
            f"job {job['id']} is {job['status']}, {job['items_failed']} items failed: {job['error']}"
        )
    return job
