from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from api.leaving import Leaving
from api.waiting import MOST_PIECES, Nudge, Waiting
from tasks.db import AsyncDatabase
from tasks.jobs import Job
from tasks.messages import Submission
from tasks.notices import Change, Piece, Reply


def reply(id_: UUID) -> Reply:
    return Reply(
        id=id_, state="succeeded", version=2, attempt=1, fence=1, items_failed=0, error=None, device_ms=1.0,
        started=1.0, finished=2.0, expires=3.0, worker="w", result=b"", has_result=True,
    )  # fmt: skip


async def never_kept(job: Submission) -> Job:
    raise AssertionError("no direct job is here")


@pytest.fixture
async def waiting() -> Waiting:
    # Its database is never asked: only what reads rows does that, and is tested with a real one.
    return Waiting(AsyncDatabase("postgresql://127.0.0.1:1/none"), never_kept)


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_a_reply_wakes_who_waits_for_the_end(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_) as waiter:
        asyncio.get_running_loop().call_soon(waiting.on_replies, [reply(uuid4()), reply(id_)])
        assert await waiter.next(soon()) == reply(id_)


async def test_a_reply_that_came_early_is_not_lost(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_) as waiter:
        waiting.on_replies([reply(id_)])
        assert await waiter.next(soon()) == reply(id_)


async def test_a_reply_is_not_replaced_by_a_change(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_) as waiter:
        waiting.on_replies([reply(id_)])
        waiting.on_changes([Change(id_, "succeeded", 2)])
        assert isinstance(await waiter.next(soon()), Reply)


@pytest.mark.parametrize("over", [Nudge.CLOSING, Nudge.GONE])
async def test_that_nobody_may_wait_any_more_is_not_replaced_by_a_change(waiting: Waiting, over: Nudge) -> None:
    id_ = uuid4()
    with waiting.open(id_) as waiter:
        waiter.notify(over)
        waiting.on_changes([Change(id_, "failed", 2)])
        waiter.notify(Nudge.LOOK)
        assert await waiter.next(soon(0)) is over


async def test_a_reply_is_heard_even_if_this_process_is_about_to_end(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_) as waiter:
        waiting.close()
        waiting.on_replies([reply(id_)])
        assert isinstance(await waiter.next(soon()), Reply)


async def test_all_who_wait_for_a_job_are_woken(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_) as one, waiting.open(id_) as other:
        waiting.on_changes([Change(id_, "failed", 2)])
        assert await one.next(soon()) == await other.next(soon()) == Change(id_, "failed", 2)


async def test_a_start_does_not_wake_who_waits_for_the_end(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_) as ends, waiting.open(id_, ends_only=False) as all_:
        waiting.on_changes([Change(id_, "running", 2)])
        assert await all_.next(soon()) == Change(id_, "running", 2)
        assert await ends.next(soon(0)) is Nudge.TIMEOUT


async def test_a_wait_ends_in_time(waiting: Waiting) -> None:
    with waiting.open(uuid4()) as waiter:
        began = asyncio.get_running_loop().time()
        assert await waiter.next(began + 0.02) is Nudge.TIMEOUT
        assert asyncio.get_running_loop().time() - began >= 0.02


async def test_a_wait_whose_time_is_past_ends_at_once(waiting: Waiting) -> None:
    with waiting.open(uuid4()) as waiter:
        assert await waiter.next(0.0) is Nudge.TIMEOUT


async def test_closing_wakes_all_and_later_waits_end_at_once(waiting: Waiting) -> None:
    with waiting.open(uuid4()) as before:
        waiting.close()
        assert await before.next(soon()) is Nudge.CLOSING
    with waiting.open(uuid4()) as after:
        assert await after.next(soon()) is Nudge.CLOSING


async def test_nothing_is_kept_of_waits_that_ended(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_), waiting.open(id_):
        assert len(waiting) == 2
    assert len(waiting) == 0
    waiting.on_replies([reply(id_)])
    waiting.on_changes([Change(id_, "failed", 2)])


async def test_a_caller_that_leaves_is_noticed(waiting: Waiting) -> None:
    gone = asyncio.Event()

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    with waiting.open(uuid4()) as waiter, Leaving(receive, waiter):
        asyncio.get_running_loop().call_soon(gone.set)
        assert await waiter.next(soon()) is Nudge.GONE


async def test_a_caller_that_stays_is_not_told_gone(waiting: Waiting) -> None:
    asked = asyncio.Event()
    messages = iter([{"type": "http.request"}])

    async def receive() -> dict[str, str]:
        for message in messages:
            return message
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    with waiting.open(uuid4()) as waiter, Leaving(receive, waiter):
        await asyncio.wait_for(asked.wait(), 5)
        assert await waiter.next(soon(0)) is Nudge.TIMEOUT


async def test_who_follows_hears_what_is_said_before_what_changed(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_, ends_only=False, follows=True) as waiter:
        waiting.on_pieces([Piece(id_, 0, 0, "one"), Piece(uuid4(), 0, 0, "another's")])
        waiting.on_changes([Change(id_, "succeeded", 2)])
        assert await waiter.next(soon()) is Nudge.SAID
        assert waiter.take() == [Piece(id_, 0, 0, "one")]
        assert await waiter.next(soon()) == Change(id_, "succeeded", 2)


async def test_what_is_said_wakes_who_waits(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_, follows=True) as waiter:
        asyncio.get_running_loop().call_soon(waiting.on_pieces, [Piece(id_, 0, 0, "one")])
        assert await waiter.next(soon()) is Nudge.SAID


async def test_who_does_not_follow_hears_nothing_of_texts(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_, ends_only=False) as waiter:
        waiting.on_pieces([Piece(id_, 0, 0, "one")])
        assert await waiter.next(soon(0.01)) is Nudge.TIMEOUT


async def test_a_slow_caller_holds_so_many_pieces_and_no_more(waiting: Waiting) -> None:
    id_ = uuid4()
    with waiting.open(id_, follows=True) as waiter:
        waiting.on_pieces([Piece(id_, 0, n, "x") for n in range(MOST_PIECES + 5)])
        assert [piece.start for piece in waiter.take()] == list(range(5, MOST_PIECES + 5))
