"""What every request needs, made once for each process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from redis.asyncio import Redis
from starlette.requests import Request

from api.asking import Asking
from api.auth import Keys
from api.fetching import Fetching, Fills
from api.flower import Flower
from api.limits import Limiter
from api.link import Link
from api.metrics import Metrics, Scrape
from api.presence import Presence
from api.progress import Progress
from api.signing import Signing
from api.unanswered import Unanswered
from api.waiting import Waiting
from catalog.live import LiveCatalog
from tasks.blobs import Blobs
from tasks.contents import AsyncContents
from tasks.costs import Prices
from tasks.counting import Counting
from tasks.db import AsyncDatabase
from tasks.dispatch import Publisher
from tasks.prepare import Limits
from tasks.settings import Settings
from tasks.submit import Submitter


@dataclass(frozen=True, slots=True)
class Services:
    """The parts that routes use. `instance` is this process's own name on the reply channel."""

    settings: Settings
    limits: Limits
    instance: str
    clock: Callable[[], float]
    catalog: LiveCatalog
    asking: Asking
    counting: Counting
    fetching: Fetching
    database: AsyncDatabase
    redis: Redis
    publisher: Publisher
    submitter: Submitter
    link: Link
    waiting: Waiting
    unanswered: Unanswered
    presence: Presence
    progress: Progress
    prices: Prices
    metrics: Metrics
    scrape: Scrape
    keys: Keys
    limiter: Limiter
    signing: Signing
    flower: Flower
    blobs: Blobs
    contents: AsyncContents

    def limits_of(self, caller: str) -> Limits:
        """What is let through of this caller, whose jobs may be kept for another time than those of others."""
        own = self.keys.retention_of(caller)
        if own is None:
            return self.limits
        return replace(self.limits, default_retention_s=min(own, self.limits.max_retention_s))


class Door(Protocol):
    """The parts that turn a request into a priced job and name what came of it, in any process that has them."""

    def limits_of(self, caller: str) -> Limits:
        """What is let through of this caller."""

    @property
    def clock(self) -> Callable[[], float]:
        """Unix seconds."""

    @property
    def catalog(self) -> LiveCatalog:
        """The models."""

    @property
    def asking(self) -> Asking:
        """Finds models that no YAML names."""

    @property
    def counting(self) -> Counting:
        """Counts tokens."""

    @property
    def fetching(self) -> Fills:
        """Fetches files by their URLs."""

    @property
    def presence(self) -> Presence:
        """Which workers live."""

    @property
    def prices(self) -> Prices:
        """What models cost."""


def services(request: Request) -> Services:
    """The services of the process that handles this request."""
    found: Services = request.app.state.services
    return found
