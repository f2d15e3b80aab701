"""What is heard of jobs that end."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from api.feeding import endings
from api.feeding.endings import DEAF_S, SLOW_S, Endings, Progress
from api.feeding.halt import Halt
from api.feeding.shaping import Stop
from tasks.notices import Change


async def test_who_waits_is_woken_when_the_last_has_ended_and_each_is_counted_once() -> None:
    heard, ids, progress, halt = Endings(), [uuid4() for _ in range(3)], Progress(), Halt()
    heard.up()
    with heard.watching(ids, progress) as watch:
        waiting = asyncio.create_task(watch.wait(halt))
        heard.heard([Change(ids[0], "running", 1), Change(ids[0], "succeeded", 2), Change(ids[0], "succeeded", 2)])
        heard.heard([Change(ids[1], "failed", 2), Change(uuid4(), "failed", 2)])
        await asyncio.sleep(0)
        assert (progress.completed, progress.failed, waiting.done()) == (1, 1, False)
        watch.drop(ids[2:])
        await asyncio.wait_for(waiting, 5)
    heard.heard([Change(ids[2], "failed", 2)])
    assert (progress.completed, progress.failed) == (1, 1)


async def test_the_rows_are_looked_at_after_a_gap_and_more_often_during_it() -> None:
    heard, halt = Endings(), Halt()
    assert heard.pause_s == DEAF_S
    with heard.watching([uuid4()], Progress()) as watch:
        waiting = asyncio.create_task(watch.wait(halt))
        heard.up()
        await asyncio.wait_for(waiting, 5)
        assert heard.pause_s == SLOW_S
        heard.down()
        assert heard.pause_s == DEAF_S


async def test_a_halt_ends_the_wait() -> None:
    heard, halt = Endings(), Halt()
    heard.up()
    with heard.watching([uuid4()], Progress()) as watch:
        waiting = asyncio.create_task(watch.wait(halt))
        await asyncio.sleep(0)
        halt.set(Stop.CANCELLED)
        await asyncio.wait_for(waiting, endings.SLOW_S / 2)
