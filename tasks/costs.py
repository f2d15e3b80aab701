"""What models cost on the hardware that is there: read by the API every few seconds, looked up at each request.

The engine children write what passes have taught them (`tasks.child.costs`); until one has, the catalog's guess holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from catalog.cost import coefficients
from catalog.loader import Choice
from catalog.schema import CostCoefficients
from tasks.db import AsyncDatabase
from tasks.store.costs import prices

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""How often the prices are read."""

FIRST_S = 1.0
"""How often while no worker has been heard of."""

TYPICAL_LENGTH = 128
"""The length by which kinds of hardware are compared."""


class Prices:
    """The price list of one process. `of` is a look-up; what it finds is at most some seconds old.

    `hardware` gives the kinds of hardware that live workers have; while there is none, all count that there ever were.
    A database that is away leaves the last list.
    """

    def __init__(self, database: AsyncDatabase, hardware: Callable[[], Collection[str]]) -> None:
        self._database = database
        self._hardware = hardware
        self._list: Mapping[str, CostCoefficients] = {}
        self._guesses: dict[str, CostCoefficients] = {}
        self._kind = "cpu"
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep the list up to date until closed."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="prices")

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def of(self, choice: Choice) -> CostCoefficients:
        """What the model costs: what it has proved to cost, else the guess for the fastest hardware there is."""
        known = self._list.get(choice.key) or self._guesses.get(choice.key)
        if known is None:
            known = self._guesses[choice.key] = coefficients(choice.spec, self._kind)
        return known

    async def refresh(self) -> None:
        """Read the list now. Raises StoreUnavailable or Overloaded."""
        # One after another: a reading for hardware that was there before must not end last.
        async with self._reading:
            there = set(self._hardware())
            self._kind = fastest(there) or self._kind
            self._guesses = {}
            self._list = cheapest(await self._database.run(prices, there or None))

    async def _run(self) -> None:
        while True:
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - an old list prices nearly as well, and requests go on
                log.debug("the prices could not be read just now: %s", type(error).__name__)
            await asyncio.sleep(LOOK_S if self._hardware() else FIRST_S)


def cheapest(found: Mapping[tuple[str, str], CostCoefficients]) -> dict[str, CostCoefficients]:
    """For each model its price on the hardware where a typical item is the cheapest: that one gets the work first."""
    best: dict[str, CostCoefficients] = {}
    for (_, model), price in found.items():
        if model not in best or typical(price) < typical(best[model]):
            best[model] = price
    return best


def fastest(there: Collection[str]) -> str | None:
    """The kind of hardware that the catalog's guess is made for; None if there is none."""
    return next((kind for kind in sorted(there) if kind.startswith("cuda")), next(iter(sorted(there)), None))


def typical(price: CostCoefficients) -> float:
    """Milliseconds of a typical item by itself: what prices are compared by."""
    return price.base + price.item(TYPICAL_LENGTH)
