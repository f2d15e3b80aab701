"""What is read of a result that may go along with an event."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest

from tasks.blobs import Blobs
from tasks.contents import AsyncContents, Contents
from tasks.db import AsyncDatabase
from tasks.store.read import Result
from tasks.webhooks.events import MOST_INLINE_BYTES
from tasks.webhooks.inlining import Results

JOB = UUID(int=1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Rows:
    """A database whose job has its result in a blob."""

    blob: str

    async def run(self, *_: Any) -> Result:
        return Result(cast("Any", None), None, self.blob)


@dataclass
class Watched(Contents):
    """Contents that say how much was read of them."""

    url: str
    most: int
    read: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(Blobs(self.url), self.most)

    def get(self, key: str, most: int = -1) -> bytes:
        found = super().get(key, most)
        self.read.append(len(found))
        return found


@pytest.mark.parametrize(("most", "read"), [(16 * 1024, [MOST_INLINE_BYTES + 1]), (MOST_INLINE_BYTES, [])])
async def test_of_a_blob_that_is_too_large_no_more_is_read_than_shows_it(most: int, read: list[int]) -> None:
    contents = Watched("memory://inlining", most)
    key = await asyncio.to_thread(contents.put, JOB, bytes(10 * MOST_INLINE_BYTES))
    results = Results(cast("AsyncDatabase", Rows(key)), AsyncContents(contents))
    assert await results(JOB, "default") is None
    assert contents.read == read
