"""What Prometheus sees: counts of this process, and the state of the whole service at the moment of the scrape.

With several processes behind one port set PROMETHEUS_MULTIPROC_DIR to an empty folder: then a scrape of any of them
tells of all. The state of the service is the same from wherever it is read.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from redis.asyncio import Redis
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.backlog import read_backlog
from api.presence import Presence
from api.webhook_metrics import attempt_families, pending_families, read_attempts
from api.worker_metrics import worker_families
from catalog.terms import Lane
from tasks.db import AsyncDatabase
from tasks.errors import TaskError
from tasks.jobs import State
from tasks.messages import Submission
from tasks.store import deliveries
from tasks.store.sweep import counts
from tasks.store.usage import Line, totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTS_FOR_S = 5.0
"""Counting the jobs reads a whole index, so it is done no more often than this."""

_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


MOST_SERIES = 500
"""Pairs of tenant and model of which a scrape tells, those with the most items."""

_USED = {
    "items": "Items of jobs that have ended",
    "tokens": "Tokens that were read and made",
    "device_ms": "Milliseconds of devices",
}


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "roost_http_requests_total", "Requests answered", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "roost_http_request_seconds", "Time to answer", ["route"], buckets=_SECONDS, registry=self.registry
        )
        self.submissions = Counter(
            "roost_submissions_total", "Jobs taken in", ["verb", "lane", "path"], registry=self.registry
        )
        self.items = Counter("roost_submitted_items_total", "Items taken in", ["verb"], registry=self.registry)
        self.waits = Counter(
            "roost_waits_total", "Waits for a result, by how they ended", ["end"], registry=self.registry
        )
        self.link_losses = Counter(
            "roost_link_losses_total", "Times that the pub/sub link to Valkey was lost", registry=self.registry
        )
        self.link_down = Counter(
            "roost_link_down_seconds_total", "Seconds without the pub/sub link to Valkey", registry=self.registry
        )

    def taken_in(self, job: Submission, path: str) -> None:
        """Count a job that was accepted."""
        self.submissions.labels(job.verb.value, job.lane.value, path).inc()
        self.items.labels(job.verb.value).inc(job.items)

    def counters(self) -> bytes:
        """The counters as text: of all processes where they share a folder, else of this one."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)


class Measured:
    """ASGI middleware that counts and times requests by the route's own path, so that ids make no new series."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and note how it went."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            self._metrics.requests.labels(route, scope["method"], status).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - began)


class Scrape:
    """Reads the state of the service for a scrape. What cannot be read is left out, and `roost_up` says so."""

    def __init__(self, database: AsyncDatabase, redis: Redis, presence: Presence) -> None:
        self._database = database
        self._redis = redis
        self._presence = presence
        self._counted: Mapping[tuple[State, Lane], int] = {}
        self._used: Sequence[Line] = ()
        self._pending: tuple[int, datetime | None] = (0, None)
        self._counted_at = float("-inf")
        self._counting = asyncio.Lock()

    async def page(self) -> bytes:
        """The gauges as text."""
        families: list[Metric] = []
        up = GaugeMetricFamily("roost_up", "1 where this process can read it", labels=["part"])
        for part, read in (("database", self._of_database), ("broker", self._of_broker), ("workers", self._workers)):
            try:
                families += await read()
                up.add_metric([part], 1)
            except TaskError:
                up.add_metric([part], 0)
        registry = CollectorRegistry()
        registry.register(_Families([up, *families]))
        return generate_latest(registry)

    async def _of_database(self) -> list[Metric]:
        async with self._counting:
            if time.monotonic() - self._counted_at >= COUNTS_FOR_S:
                self._counted = await self._database.run(counts)
                self._used = await self._database.run(totals, MOST_SERIES)
                self._pending = await self._database.run(deliveries.standing)
                self._counted_at = time.monotonic()
        return [*self._jobs(), *self._usage(), *pending_families(*self._pending, datetime.now(UTC))]

    def _usage(self) -> list[Metric]:
        """As they are kept in the database, so that they are one count over all processes and restarts."""
        families: list[Metric] = []
        for name, what in _USED.items():
            family = CounterMetricFamily(f"roost_tenant_{name}", what, labels=["tenant", "model"])
            for line in self._used:
                family.add_metric([line.tenant, line.key], getattr(line.used, name))
            families.append(family)
        return families

    def _jobs(self) -> list[Metric]:
        family = GaugeMetricFamily("roost_open_jobs", "Jobs that have not ended", labels=["state", "lane"])
        for (state, lane), number in self._counted.items():
            family.add_metric([state.value, lane.value], number)
        return [family]

    async def _of_broker(self) -> list[Metric]:
        return [*await self._queues(), *attempt_families(await read_attempts(self._redis))]

    async def _queues(self) -> list[Metric]:
        backlog = await read_backlog(self._redis)
        family = GaugeMetricFamily("roost_queue_messages", "Messages that no worker has taken", labels=["queue"])
        for name, depth in backlog.queues.items():
            family.add_metric([name], depth)
        models = GaugeMetricFamily(
            "roost_model_messages", "Messages of a model that no worker has taken", labels=["queue", "model"]
        )
        for place, depth in backlog.models.items():
            models.add_metric(place, depth)
        return [family, models]

    async def _workers(self) -> list[Metric]:
        return worker_families(await self._presence.live())


class _Families(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
