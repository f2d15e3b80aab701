"""Takes batches that nobody works on, and works on them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from contextlib import suppress
from uuid import UUID

from redis.exceptions import RedisError

from api.feeding.run import BatchRun
from api.feeding.services import Feeding
from api.feeding.tidying import Tidying
from api.feeding.window import Window
from tasks import keys
from tasks.errors import TaskError
from tasks.lines import Fault
from tasks.store import batch_leases as leases

log = logging.getLogger(__name__)

MOST_BATCHES = 64
"""Batches that one feeder works on at once; those that are to be cancelled come on top."""

LOOK_S = 0.5
"""How often it is looked for new batches."""

BEAT_KEPT_S = 30
MOST_FAULTS = 3
"""A batch at which the service itself failed so often is given up."""


class Feeder:
    """One for each process and event loop. Any number of them may run side by side."""

    def __init__(self, it: Feeding, name: str) -> None:
        self._it = it
        self._name = name
        self._window = Window(it.settings.batch_in_flight)
        self._runs: set[asyncio.Task[None]] = set()
        self._faults: Counter[UUID] = Counter()
        self._closing = asyncio.Event()

    async def run(self) -> None:
        """Work until `close`; then hand back what is not done, for others to go on with."""
        tidying = asyncio.create_task(Tidying(self._it).run(), name="tidying")
        try:
            while not self._closing.is_set():
                taken = False
                try:
                    taken = await self._take()
                except (TaskError, OSError) as error:
                    log.warning("no batches can be had just now: %s", error)
                await self._beat()
                if not taken:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await self._closing.wait()
        finally:
            tasks = [tidying, *self._runs]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def close(self) -> None:
        """Have `run` end."""
        self._closing.set()

    async def _take(self) -> bool:
        """Begin with one more batch; False when there is none."""
        # A lease has a name of its own: one that was lost is not taken for a newer one of the same process.
        feeder = f"{self._name}:{secrets.token_hex(6)}"
        urgent = len(self._runs) >= MOST_BATCHES
        batch = await self._it.database.run(leases.claim, feeder, self._it.settings.job_lease_s, urgent=urgent)
        if batch is None:
            return False
        log.info("batch %s is %s: taken", batch.id, batch.status)
        run = BatchRun(self._it, batch, feeder, self._window)
        task = asyncio.create_task(self._work(run), name=f"run of batch {batch.id}")
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        return True

    async def _work(self, run: BatchRun) -> None:
        id_ = run.batch.id
        try:
            await run.run()
            log.info("batch %s has ended", id_)
            self._faults.pop(id_, None)
        except leases.LeaseLost:
            log.warning("batch %s: another feeder works on it now", id_)
        except asyncio.CancelledError:
            with suppress(TaskError):
                await self._it.database.run(leases.release, run.feeder)
            raise
        except (TaskError, OSError) as error:
            # Its lease ends by itself: whoever takes it then goes on from there.
            log.warning("batch %s waits: %s", id_, error)
        except Exception:
            log.exception("unexpected error in batch %s", id_)
            self._faults[id_] += 1
            if self._faults[id_] >= MOST_FAULTS:
                with suppress(TaskError, leases.LeaseLost):
                    await run.fail(Fault("internal", "Something went wrong in the service; its log has the reason."))

    async def _beat(self) -> None:
        """Say that this process lives."""
        try:
            await self._it.redis.set(keys.feeder(self._name), repr(time.time()), ex=BEAT_KEPT_S)
        except (RedisError, OSError) as error:
            log.debug("the beat was not heard: %s", type(error).__name__)
