"""Batches that a feeder takes up where another one died, over real Postgres and Valkey."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.compat import calls
from api.feeding.services import Feeding
from tasks.batches import Status
from tasks.errors import InvalidRequest
from tests.integration.api.test_feeding import (
    Consumer,
    Start,
    embed,
    ended,
    it,
    jobs_of,
    lines_of,
    new_batch,
    settings,
    start,
)

__all__ = ["it", "settings", "start"]

LINES = 6


async def test_lines_that_have_their_jobs_are_not_refused_by_what_has_changed_since(
    it: Feeding, start: Start, idle_consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await new_batch(it, [embed(n) for n in range(LINES)])
    first = await start("one")
    async with asyncio.timeout(60):
        while await it.database.run(jobs_of, batch) < LINES:  # noqa: ASYNC110 - rows send no signal
            await asyncio.sleep(0.02)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    async def refuse(*_: Any, **__: Any) -> None:
        raise InvalidRequest("The model is gone.")

    monkeypatch.setattr(calls, "admit", refuse)
    idle_consumer.release()
    await start("two")
    batch = await ended(it, batch)

    assert (batch.status, batch.completed, batch.failed) == (Status.COMPLETED, LINES, 0)
    assert [int(line["custom_id"]) for line in await lines_of(it, batch.output_file)] == list(range(LINES))
