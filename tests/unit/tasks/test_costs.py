from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from catalog.loader import Choice
from catalog.schema import CostCoefficients, EncodeFacts, Spec, Tasks
from tasks.costs import Prices
from tasks.db import AsyncDatabase

SLOW, QUICK = CostCoefficients(base=100.0, per_token=1.0), CostCoefficients(base=1.0, per_token=0.1)
SPEC = Spec(id="org/m", family="fake", tasks=Tasks(encode=EncodeFacts(dims=4)), parameters=0, max_length=96)
MODEL = Choice(SPEC, "default", "org/m", {}, {})
Found = Mapping[tuple[str, str], CostCoefficients]


class Late:
    """A database that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, asyncio.Future[Found]]] = []

    def run(self, _read: Callable[..., Found], there: Any) -> asyncio.Future[Found]:
        self.asked.append((there, asyncio.get_running_loop().create_future()))
        return self.asked[-1][1]


async def test_a_reading_for_hardware_that_was_there_before_does_not_end_last() -> None:
    database, there = Late(), set[str]()
    prices = Prices(cast("AsyncDatabase", database), lambda: there)
    before = asyncio.ensure_future(prices.refresh())
    await asyncio.sleep(0)
    there.add("cpu")
    after = asyncio.ensure_future(prices.refresh())
    await asyncio.sleep(0)

    assert [asked for asked, _ in database.asked] == [None]
    database.asked[0][1].set_result({("cuda", MODEL.key): SLOW})
    await before
    await asyncio.sleep(0)
    assert [asked for asked, _ in database.asked] == [None, {"cpu"}]
    database.asked[1][1].set_result({("cpu", MODEL.key): QUICK})
    await after

    assert prices.of(MODEL) == QUICK
