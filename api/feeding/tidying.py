"""Removes files whose time is over, batches that ended long ago, and what jobs and dead processes leave as blobs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta

from api.feeding.services import Feeding
from tasks.backfills.backfill import FOLDER as BACKFILLS
from tasks.batches import FOLDER as BATCHES
from tasks.contents import FOLDER as JOBS
from tasks.errors import TaskError
from tasks.files import FOLDER as FILES
from tasks.store import backfills, batches, files, spent

log = logging.getLogger(__name__)

TIDY_S = 60.0
"""How often files are removed whose time is over."""

SPEND_S = 5.0
"""How often blobs are removed that no row names any more."""

SWEEP_S = 6 * 3600.0
"""How often the blob store is looked through."""

ORPHAN_AGE = timedelta(days=1)
"""A blob without a row may be one that is written just now. After so long it is not."""

_PAGE = 100
_SET = 1000


class Tidying:
    """One for each feeder; it is no harm when several tidy at once."""

    def __init__(self, it: Feeding) -> None:
        self._it = it
        self._expired = self._swept = float("-inf")

    async def run(self) -> None:
        """Tidy until cancelled."""
        while True:
            try:
                await self.spend()
                if time.monotonic() - self._expired >= TIDY_S:
                    await self.expire()
                    self._expired = time.monotonic()
                if time.monotonic() - self._swept >= SWEEP_S:
                    await self.sweep()
                    self._swept = time.monotonic()
            except (TaskError, OSError) as error:
                log.warning("tidying waits: %s", error)
            except Exception:
                log.exception("unexpected error while tidying")
            await asyncio.sleep(SPEND_S)

    async def spend(self) -> None:
        """Remove the blobs of jobs that were deleted, or are not kept. Raises StoreUnavailable."""
        it = self._it
        while keys := await it.database.run(spent.due, _SET):
            gone = await it.contents.delete(keys)
            await it.database.run(spent.done, gone)
            if len(gone) < len(keys):
                # Those that cannot be removed now wait at the end of the line, behind what can.
                await it.database.run(spent.later, [key for key in keys if key not in gone])
                return

    async def expire(self) -> None:
        """Remove files, batches and backfills whose time is over. Raises StoreUnavailable."""
        it = self._it
        while blobs := await it.database.run(files.expire, it.now(), _PAGE):
            for blob in blobs:
                await self._delete(blob)
        ended = it.now() - timedelta(seconds=it.settings.max_retention_s)
        for forget in (batches.forget, backfills.forget):
            while await it.database.run(forget, ended, _PAGE):
                pass

    async def sweep(self) -> None:
        """Remove blobs that no row names any more, or never did. Raises StoreUnavailable, OSError."""

        async def of_files(keys: Sequence[str]) -> set[str]:
            return await self._it.database.run(files.kept, keys)

        async def of_batches(keys: Sequence[str]) -> set[str]:
            folders = {key.rpartition("/")[0] for key in keys}
            open_ = await self._it.database.run(batches.open_folders, sorted(folders))
            return {key for key in keys if key.rpartition("/")[0] in open_}

        async def of_backfills(keys: Sequence[str]) -> set[str]:
            return await self._it.database.run(backfills.kept, keys)

        async def of_jobs(keys: Sequence[str]) -> set[str]:
            return await self._it.database.run(spent.named, keys)

        count = 0
        for folder, kept in ((FILES, of_files), (BATCHES, of_batches), (BACKFILLS, of_backfills), (JOBS, of_jobs)):
            count += await self._sweep(folder, kept)
        if count:
            log.info("removed %d blobs from the store that belonged to nothing", count)

    async def _sweep(self, folder: str, kept: Callable[[Sequence[str]], Awaitable[set[str]]]) -> int:
        count = 0
        found = await asyncio.to_thread(self._it.blobs.keys, folder)
        for start in range(0, len(found), _SET):
            keys = found[start : start + _SET]
            lost = await asyncio.to_thread(self._old, set(keys) - await kept(keys))
            for key in lost:
                count += await self._delete(key)
        return count

    def _old(self, keys: Iterable[str]) -> list[str]:
        until = self._it.now() - ORPHAN_AGE
        return [key for key in keys if (at := self._it.blobs.written_at(key)) is not None and at <= until]

    async def _delete(self, key: str) -> bool:
        """Whether it is gone. What cannot be removed now is a blob without a row, which the next sweep finds."""
        try:
            await asyncio.to_thread(self._it.blobs.delete, key)
        except OSError as error:
            log.warning("%s is still in the store, and tried again later: %s", key, error)
            return False
        return True
