"""Fetching the files of a request by their URLs, at the door: under the guard, several at once, and within bounds.

What cannot be had is the fault of its item. Nothing that a server replies is told, its status apart. A process fetches
so many files at once and one tenant a part of them, so that slow servers hold up nobody but those who name them.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from api.body import OFF_LOOP_BYTES
from catalog.errors import RoostError
from tasks.errors import InvalidRequest, LimitExceeded, UrlUnreachable
from tasks.filling import filled
from tasks.prepare import Checked
from tasks.settings import Settings
from tasks.sources import Fetched, Source
from tasks.webhooks.connect import Opener
from tasks.webhooks.guard import Guard

ONE_TENANTS = 4
"""One in so many of the files that are fetched at once may be of one tenant."""


class Fills(Protocol):
    """What a door needs of it."""

    async def fill(self, checked: Checked, caller: str) -> Checked:
        """The request with its files. Raises InvalidRequest or LimitExceeded, or as `tasks.filling.filled`."""


class Fetching:
    """One for each process and event loop. `opener` is for tests."""

    def __init__(self, settings: Settings, opener: Opener | None = None) -> None:
        self._settings = settings
        guard = Guard.of(settings.fetch_allow, http=settings.fetch_http, settings="ROOST_FETCH")
        self._opener = opener or Opener(guard)
        self._turns = asyncio.Semaphore(settings.fetch_in_flight)
        self._turns_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def fill(self, checked: Checked, caller: str) -> Checked:
        """The request with its files. Raises InvalidRequest or LimitExceeded, or as `tasks.filling.filled`."""
        sources, most = checked.sources, self._settings.fetch_files
        if not self._settings.fetch:
            raise InvalidRequest(
                f"{sources[0].where!r} is not taken: this server fetches nothing (ROOST_FETCH); send the file itself "
                "under 'data'.",
                param=sources[0].where,
            )
        if len(sources) > most:
            raise LimitExceeded(
                f"{sources[most].where!r} is one too many: a job has at most {most} files by URL, the limit "
                "ROOST_FETCH_FILES of this server.",
                param=sources[most].where,
            )
        job = _Job(self._opener, self._settings, self._turns, self._of(caller))
        # A conversation with several choices names its images once for each of them.
        first: dict[tuple[str, int | None], Source] = {}
        for source in sources:
            first.setdefault((source.url, source.most), source)
        async with asyncio.TaskGroup() as group:
            tasks = {source: group.create_task(job.fetch(source)) for source in first.values()}
        found = {source: task.result() for source, task in tasks.items()}
        for source in sources:
            if source not in found:
                one = first[source.url, source.most]
                found[source] = job.again(source, found[one], one)
        if job.taken > OFF_LOOP_BYTES:  # documents are looked into for their pages
            return await asyncio.to_thread(filled, checked, found)
        return filled(checked, found)

    async def close(self) -> None:
        """Close what is open."""
        await self._opener.close()

    def _of(self, caller: str) -> asyncio.Semaphore:
        found = self._turns_of.get(caller)
        if found is None:
            found = asyncio.Semaphore(max(1, self._settings.fetch_in_flight // ONE_TENANTS))
            self._turns_of[caller] = found
        return found


@dataclass(slots=True)
class _Job:
    """The files of one job, which share their time and their bytes."""

    opener: Opener
    settings: Settings
    turns: AbstractAsyncContextManager[None]
    own_turns: AbstractAsyncContextManager[None]
    taken: int = 0
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.until = asyncio.get_running_loop().time() + self.settings.fetch_timeout_s

    async def fetch(self, source: Source) -> Fetched | RoostError:
        """The file, or why it could not be had."""
        try:
            async with asyncio.timeout_at(self.until), self.own_turns, self.turns:
                return await self._fetch(source)
        except TimeoutError:
            return UrlUnreachable(
                f"{source.where!r} was not fetched within {self.settings.fetch_timeout_s:g} s, which all files of a "
                "job have together.",
                param=source.where,
                retryable=True,
            )
        except RoostError as error:
            return error

    def again(self, source: Source, found: Fetched | RoostError, first: Source) -> Fetched | RoostError:
        """What was found for a source that has the same URL, for this one."""
        if isinstance(found, RoostError):
            error = copy(found)
            error.message = found.message.replace(repr(first.where), repr(source.where))
            error.param, error.args = source.where, (error.message,)
            return error
        if len(found.data) > self.settings.max_body_bytes - self.taken:
            return self._too_much(source)
        self.taken += len(found.data)
        return found

    async def _fetch(self, source: Source) -> Fetched:
        room = self.settings.max_body_bytes - self.taken
        most = min(self.settings.fetch_bytes, source.most or self.settings.fetch_bytes)
        if room >= most:
            file = await self._open(source, most)
        else:
            try:
                file = await self._open(source, max(0, room))
            except LimitExceeded:
                raise self._too_much(source) from None
        if len(file.data) > self.settings.max_body_bytes - self.taken:  # others came meanwhile
            raise self._too_much(source)
        self.taken += len(file.data)
        return file

    async def _open(self, source: Source, most: int) -> Fetched:
        return await self.opener.fetch(
            source.url, timeout_s=self.settings.fetch_timeout_s, most_bytes=most, param=source.where
        )

    def _too_much(self, source: Source) -> LimitExceeded:
        return LimitExceeded(
            f"{source.where!r} was not fetched: the files of a job have at most {self.settings.max_body_bytes} bytes "
            "together, the limit ROOST_MAX_BODY_BYTES of this server.",
            param=source.where,
        )
