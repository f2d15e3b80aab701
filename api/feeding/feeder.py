"""Takes what nobody works on, batches and backfills, and works on it."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from redis.exceptions import RedisError
from sqlalchemy import Connection

from api.feeding.backfills.run import BackfillRun
from api.feeding.heirs import inherit, lease_name
from api.feeding.leased import LeasedRun
from api.feeding.run import BatchRun
from api.feeding.services import Feeding
from api.feeding.tidying import Tidying
from api.feeding.window import Window
from tasks import keys
from tasks.errors import TaskError
from tasks.lines import Fault
from tasks.store import backfill_leases, batch_leases
from tasks.store.leases import LeaseLost

log = logging.getLogger(__name__)

MOST_RUNS = 64
"""Batches that one feeder works on at once, and as many backfills; those that are to be cancelled come on top."""

LOOK_S = 0.5
"""How often it is looked for new work."""

BEAT_KEPT_S = 30
MOST_FAULTS = 3
"""Work at which the service itself failed so often is given up."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a feeder works on. `claim` takes one that nobody holds, `release` hands it back, `run` works on it."""

    name: str
    claim: Callable[..., Any]
    release: Callable[[Connection, str], None]
    run: Callable[[Feeding, Any, str, Window], LeasedRun]
    runs: set[asyncio.Task[None]] = field(default_factory=set)


def kinds() -> tuple[Kind, ...]:
    """All of them, for one feeder."""
    return (
        Kind("batch", batch_leases.claim, batch_leases.release, BatchRun),
        Kind("backfill", backfill_leases.claim, backfill_leases.release, BackfillRun),
    )


class Feeder:
    """One for each process and event loop. Any number of them may run side by side."""

    def __init__(self, it: Feeding, name: str) -> None:
        self._it = it
        self._name = name
        self._window = Window(it.settings.batch_in_flight)
        self._kinds = kinds()
        self._faults: Counter[UUID] = Counter()
        self._closing = asyncio.Event()

    async def run(self) -> None:
        """Work until `close`; then hand back what is not done, for others to go on with."""
        tidying = asyncio.create_task(Tidying(self._it).run(), name="tidying")
        try:
            await self._inherit()
            while not self._closing.is_set():
                taken = False
                try:
                    for kind in self._kinds:
                        taken |= await self._take(kind)
                except (TaskError, OSError) as error:
                    log.warning("no work can be had just now: %s", error)
                await self._beat()
                if not taken:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await self._closing.wait()
        finally:
            tasks = [tidying, *(task for kind in self._kinds for task in kind.runs)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Have `run` end."""
        self._closing.set()

    async def _inherit(self) -> None:
        try:
            if dead := await inherit(self._it, self._name):
                log.info("%d leases of a process that died are free", len(dead))
        except (TaskError, OSError) as error:
            log.warning("leases of the dead have to run out: %s", error)

    async def _take(self, kind: Kind) -> bool:
        """Begin with one more of a kind; False when there is none."""
        # A lease has a name of its own: one that was lost is not taken for a newer one of the same process.
        feeder = lease_name(self._name, os.getpid(), secrets.token_hex(6))
        urgent = len(kind.runs) >= MOST_RUNS
        found = await self._it.database.run(kind.claim, feeder, self._it.settings.job_lease_s, urgent=urgent)
        if found is None:
            return False
        log.info("%s %s is %s: taken", kind.name, found.id, found.status)
        run = kind.run(self._it, found, feeder, self._window)
        task = asyncio.create_task(self._work(run, kind), name=f"run of {kind.name} {found.id}")
        kind.runs.add(task)
        task.add_done_callback(kind.runs.discard)
        return True

    async def _work(self, run: LeasedRun, kind: Kind) -> None:
        id_ = run.id
        try:
            await run.run()
            log.info("%s %s: nothing is left to do", kind.name, id_)
            self._faults.pop(id_, None)
        except LeaseLost:
            log.warning("%s %s: another feeder works on it now", kind.name, id_)
        except asyncio.CancelledError:
            with suppress(TaskError):
                await self._it.database.run(kind.release, run.feeder)
            raise
        except (TaskError, OSError) as error:
            # Its lease ends by itself: whoever takes it then goes on from there.
            log.warning("%s %s waits: %s", kind.name, id_, error)
        except Exception:
            log.exception("unexpected error in %s %s", kind.name, id_)
            self._faults[id_] += 1
            if self._faults[id_] >= MOST_FAULTS:
                with suppress(TaskError, LeaseLost):
                    await run.fail(Fault("internal", "Something went wrong in the service; its log has the reason."))

    async def _beat(self) -> None:
        """Say that this process lives."""
        try:
            await self._it.redis.set(keys.feeder(self._name), repr(time.time()), ex=BEAT_KEPT_S)
        except (RedisError, OSError) as error:
            log.debug("the beat was not heard: %s", type(error).__name__)
