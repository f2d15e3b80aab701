from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tasks.errors import Overloaded, StoreUnavailable
from tasks.gather import Gather


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Line:
    """Work that runs when it is let, and notes its groups."""

    def __init__(self, *, closed: bool = False) -> None:
        self.groups: list[list[int]] = []
        self.gate = asyncio.Event()
        if not closed:
            self.gate.set()
        self.entered = asyncio.Event()

    async def work(self, things: Sequence[int]) -> list[int]:
        self.groups.append(list(things))
        self.entered.set()
        await self.gate.wait()
        if any(thing < 0 for thing in things):
            raise ValueError("bad thing")
        return [thing * 10 for thing in things]


def gather(line: Line, *, most: int = 100, most_bytes: int = 1000, room: int = 100) -> Gather[int, int]:
    return Gather(line.work, most=most, most_bytes=most_bytes, size=abs, room=room)


async def test_each_caller_gets_its_own_result() -> None:
    line = gather(Line())
    assert await asyncio.gather(*(line.put(n) for n in (1, 2, 3))) == [10, 20, 30]


async def test_what_comes_during_a_group_is_the_next_group() -> None:
    line = Line(closed=True)
    gathering = gather(line)
    first = gathering.put(1)
    await line.entered.wait()
    rest = [gathering.put(n) for n in (2, 3, 4)]
    line.gate.set()
    await asyncio.gather(first, *rest)
    assert line.groups == [[1], [2, 3, 4]]


async def test_a_group_is_bounded_by_count() -> None:
    line = Line()
    gathering = gather(line, most=2)
    await asyncio.gather(*(gathering.put(n) for n in (1, 2, 3)))
    assert line.groups == [[1, 2], [3]]


async def test_a_group_is_bounded_by_size_but_holds_at_least_one() -> None:
    line = Line()
    gathering = gather(line, most_bytes=10)
    await asyncio.gather(*(gathering.put(n) for n in (6, 5, 50, 1)))
    assert line.groups == [[6], [5], [50], [1]]


async def test_a_full_room_takes_no_more() -> None:
    line = Line(closed=True)
    gathering = gather(line, room=2)
    first = gathering.put(1)
    await line.entered.wait()
    waiting = [gathering.put(2), gathering.put(3)]
    with pytest.raises(Overloaded):
        gathering.put(4)
    line.gate.set()
    assert await asyncio.gather(first, *waiting) == [10, 20, 30]


async def test_one_bad_thing_fails_alone() -> None:
    gathering = gather(Line())
    results = await asyncio.gather(*(gathering.put(n) for n in (1, 2, -3, 4, 5)), return_exceptions=True)
    assert [r for r in results if not isinstance(r, Exception)] == [10, 20, 40, 50]
    assert isinstance(results[2], ValueError)


async def test_an_error_of_ours_is_for_the_whole_group() -> None:
    calls: list[int] = []

    async def away(things: Sequence[int]) -> list[int]:
        calls.append(len(things))
        raise StoreUnavailable

    gathering: Gather[int, int] = Gather(away, most=10, most_bytes=100, size=abs, room=10)
    results = await asyncio.gather(*(gathering.put(n) for n in (1, 2, 3)), return_exceptions=True)
    assert all(isinstance(r, StoreUnavailable) for r in results)
    assert calls == [3]


async def test_a_caller_that_gives_up_does_not_trouble_the_others() -> None:
    line = Line(closed=True)
    gathering = gather(line)
    gone, stays = gathering.put(1), gathering.put(2)
    await line.entered.wait()
    gone.cancel()
    line.gate.set()
    assert await stays == 20


async def test_drain_returns_when_all_is_done() -> None:
    line = gather(Line())
    futures = [line.put(n) for n in range(5)]
    await line.drain()
    assert all(future.done() for future in futures)


async def test_drain_of_nothing_returns_at_once() -> None:
    await gather(Line()).drain()
