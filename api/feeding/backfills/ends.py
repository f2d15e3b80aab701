"""Waiting for jobs of many documents with one look at all of them at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from api.feeding.jobs import POLL_S
from api.feeding.services import Feeding
from tasks.errors import TaskError
from tasks.store import batch_parts

log = logging.getLogger(__name__)


class Ends:
    """One for each backfill; `run` looks until it is cancelled."""

    def __init__(self, it: Feeding) -> None:
        self._it = it
        self._waiting: dict[UUID, asyncio.Future[None]] = {}

    async def of(self, ids: Sequence[UUID]) -> None:
        """Return once all these jobs have ended, or are gone. Their rows must be there before."""
        loop = asyncio.get_running_loop()
        ends = [self._waiting.setdefault(id_, loop.create_future()) for id_ in ids]
        await asyncio.gather(*ends)

    async def run(self) -> None:
        """Look, again and again."""
        while True:
            if ids := list(self._waiting):
                try:
                    states = await self._it.database.run(batch_parts.job_states, ids)
                except TaskError as error:
                    log.warning("the ends of jobs cannot be read just now: %s", error.message)
                else:
                    for id_ in ids:
                        if id_ not in states or states[id_][0].final:
                            self._tell(id_)
            await asyncio.sleep(POLL_S)

    def _tell(self, id_: UUID) -> None:
        future = self._waiting.pop(id_)
        if not future.done():
            future.set_result(None)
