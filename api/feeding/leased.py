"""Work under a lease, from where it stands to its end. Whoever takes it up after a death goes on there."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from uuid import UUID

from api.feeding.services import Feeding
from tasks.errors import TaskError
from tasks.lines import Fault
from tasks.store.leases import LeaseLost

log = logging.getLogger(__name__)

TEND_S = 0.5
"""How often the lease is renewed, the counts are told, and it is looked whether the work must end."""


class LeasedRun(ABC):
    """The work on one thing under the lease that `feeder` names. It is `over` once its end is written."""

    it: Feeding
    feeder: str
    over: bool

    @property
    @abstractmethod
    def id(self) -> UUID:
        """Of what is worked on."""

    async def run(self) -> None:
        """Do it to the end. Raises LeaseLost, TaskError or OSError when it cannot be done just now."""
        work = asyncio.create_task(self._work(), name=f"work on {self.id}")
        tending = asyncio.create_task(self._tend(), name=f"lease of {self.id}")
        try:
            await asyncio.wait([work, tending], return_when=asyncio.FIRST_COMPLETED)
            if tending.done():
                tending.result()
            await work
        finally:
            for task in (work, tending):
                task.cancel()
            await asyncio.gather(work, tending, return_exceptions=True)

    @abstractmethod
    async def fail(self, fault: Fault) -> None:
        """End it without files. Raises LeaseLost."""

    @abstractmethod
    async def _work(self) -> None:
        """Do it."""

    @abstractmethod
    async def _renew(self) -> None:
        """Renew the lease once, and see whether the work must end. Raises LeaseLost, TaskError."""

    async def _tend(self) -> None:
        """Keep the lease until it is lost."""
        while not self.over:
            try:
                await self._renew()
            except TaskError as error:
                log.warning("%s: %s", self.id, error.message)
            except LeaseLost:
                if not self.over:
                    raise
            await asyncio.sleep(TEND_S)
