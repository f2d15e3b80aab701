"""Fetching the files of a batch's lines: as at the door of the API, and given up at once when the batch is halted."""

from __future__ import annotations

from dataclasses import dataclass

from api.feeding.halt import Halt
from api.fetching import Fills
from tasks.prepare import Checked


@dataclass(frozen=True, slots=True)
class UntilHalt:
    """Fetches for as long as the work goes on; a slow server does not hold up a cancel."""

    fetching: Fills
    halt: Halt

    async def fill(self, checked: Checked, caller: str) -> Checked:
        """As `Fetching.fill`; raises TimeoutError when the work is halted."""
        async with self.halt.cutting():
            return await self.fetching.fill(checked, caller)
