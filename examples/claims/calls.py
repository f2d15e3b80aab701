"""A caller of Roost in plain HTTP: a stage is one job, waited for within the call or sent and come back for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgpack

from examples.claims.models import Model

ENDED = frozenset({"succeeded", "failed", "cancelled", "expired"})
WAIT_S = 120
POLL_S = 30


class StageFailed(Exception):
    """A stage had no answer, or not for all of its items."""


@dataclass(frozen=True)
class Answer:
    """A stage of a claim that has been answered: the ended job, its result, and the time from call to answer."""

    claim: str
    stage: str
    model: Model
    job: Mapping[str, Any]
    result: Mapping[str, Any]
    waited_ms: float

    @property
    def items(self) -> Sequence[Mapping[str, Any]]:
        """What was answered for each item, in the order that they were sent in."""
        found: Sequence[Mapping[str, Any]] = self.result["items"]
        return found


class Roost:
    """Calls the service. With `jobs` every call is a job that is sent, and come back for by long polls."""

    def __init__(self, url: str, *, jobs: bool) -> None:
        self.jobs = jobs
        # A long poll is longer than httpx waits by itself.
        self._http = httpx.AsyncClient(base_url=url, timeout=WAIT_S + 60.0, headers={"Accept": "application/json"})

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call(self, claim: str, stage: str, model: Model, **body: Any) -> Answer:
        """One job. Its body goes as msgpack, in which files are bytes. Raises StageFailed with what was said."""
        began = time.perf_counter()
        sent = msgpack.packb({"model": model.name, "tags": [claim, stage], **body})
        prefer = "respond-async" if self.jobs else f"wait={WAIT_S}"
        headers = {"Content-Type": "application/msgpack", "Prefer": prefer}
        job = await self._asked("POST", "/v1/jobs", stage, content=sent, headers=headers)
        while job["status"] not in ENDED:
            job = await self._asked("GET", job["urls"]["self"], stage, params={"wait": POLL_S})
        if job["status"] != "succeeded":
            raise StageFailed(f"{claim} {stage}: job {job['id']} is {job['status']}: {job['error']}")
        result = job.get("result") or await self._asked("GET", job["urls"]["result"], stage)
        failed = [item["error"]["message"] for item in result["items"] if "error" in item]
        if failed:
            raise StageFailed(f"{claim} {stage}: {failed}")
        return Answer(claim, stage, model, job, result, 1000 * (time.perf_counter() - began))

    async def residency(self) -> Sequence[Mapping[str, Any]]:
        """What is loaded on each worker, as of its last beat."""
        found = await self._asked("GET", "/v1/residency", "residency")
        workers: Sequence[Mapping[str, Any]] = found["data"]
        return workers

    async def _asked(self, method: str, path: str, stage: str, **more: Any) -> Mapping[str, Any]:
        reply = await self._http.request(method, path, **more)
        body: Mapping[str, Any] = reply.json()
        if reply.is_error:
            error = body["error"]
            raise StageFailed(f"{stage}: {reply.status_code} {error['code']}: {error['message']}")
        return body
