"""Inputs and results of jobs that are too large for a row: where they are in the blob store, and how they get there.

A key begins with the id of its job, so that the row of a blob is found without an index of keys, and ends with what
nobody can guess. The blob is written before the row that names it is committed: what a crash leaves between the two
belongs to nothing and is swept (`api/feeding/tidying.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from tasks.blobs import Blobs
from tasks.errors import BlobMissing, StoreUnavailable
from tasks.messages import Submission

log = logging.getLogger(__name__)

T = TypeVar("T")

FOLDER = "jobs"
"""Where they are in the blob store."""

THREADS = 8
"""Blobs that one process reads or writes at once."""

AWAY = "The store of large inputs and results cannot be reached; try again later."


def new_key(id_: UUID) -> str:
    """A key for a blob of this job. Folders of two digits keep each of them small."""
    return f"{FOLDER}/{id_.hex[-2:]}/{id_.hex}_{secrets.token_hex(20)}"


def job_of(key: str) -> UUID | None:
    """The job that a key names; None for what is no key of a job's blob."""
    try:
        return UUID(key.rpartition("/")[2].partition("_")[0])
    except ValueError:
        return None


class Contents:
    """Reads and writes them. All calls block; call them from threads. `most` is the largest that stays in a row."""

    def __init__(self, blobs: Blobs, most: int) -> None:
        self._blobs = blobs
        self.most = most

    def put(self, id_: UUID, data: bytes) -> str:
        """Write it; the key of the blob. Raises StoreUnavailable."""
        key = new_key(id_)
        try:
            with self._blobs.writing(key) as file:
                file.write(data)
        except Exception as error:
            # Libraries of object stores raise what they like.
            raise _away(error) from error
        return key

    def get(self, key: str, most: int = -1) -> bytes:
        """Read it, or its first `most` bytes. Raises BlobMissing, or StoreUnavailable."""
        try:
            with self._blobs.reading(key) as file:
                return file.read(most)
        except FileNotFoundError:
            log.warning("blob %s is gone", key)
            raise BlobMissing from None
        except Exception as error:
            raise _away(error) from error

    def delete(self, keys: Iterable[str]) -> list[str]:
        """Remove blobs; the keys of those that are gone now."""
        gone = []
        for key in keys:
            try:
                self._blobs.delete(key)
            except Exception as error:  # noqa: BLE001 - libraries of object stores raise what they like
                log.warning("%s is still in the store, and tried again later: %s", key, type(error).__name__)
            else:
                gone.append(key)
        return gone


def _away(error: Exception) -> StoreUnavailable:
    log.warning("the blob store failed: %s", type(error).__name__)
    return StoreUnavailable(AWAY)


class AsyncContents:
    """The same for an event loop, by threads of its own: a store that hangs must not hold up those of others."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="blobs")

    async def offloaded(self, job: Submission) -> Submission:
        """The job with its inputs in the store, if they are too large for a row. Raises StoreUnavailable."""
        if len(job.inputs) <= self.contents.most:
            return job
        key = await self._run(self.contents.put, job.id, job.inputs)
        return replace(job, inputs=b"", inputs_blob=key)

    async def get(self, key: str, most: int = -1) -> bytes:
        """Read a blob, or its first `most` bytes. Raises BlobMissing, or StoreUnavailable."""
        return await self._run(self.contents.get, key, most)

    async def delete(self, keys: Iterable[str]) -> list[str]:
        """Remove blobs; the keys of those that are gone now."""
        return await self._run(self.contents.delete, list(keys))

    def close(self) -> None:
        """Wait for nobody: what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *args)
