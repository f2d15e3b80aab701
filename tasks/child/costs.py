"""Keeping what passes have taught: the records are read when the child starts, and written while it runs.

A child starts without them when the database is away, and takes them over once it is back: what it has learned of a
model by then counts for more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from engine.costs import CostBook, CostRecord
from tasks.db import Database
from tasks.store.costs import Cost, put, read

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""How often what has changed is written. As much is lost when the child dies."""


class CostKeeper:
    """A thread that reads the records of a cost book once and then writes its changes until it is closed."""

    def __init__(self, database: Database, book: CostBook, hardware: str) -> None:
        self._database = database
        self._book = book
        self._hardware = hardware
        self._read = False
        self._unwritten: dict[str, CostRecord] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="costs", daemon=True)

    def start(self) -> None:
        """Start the thread. It reads the records first."""
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Write what is left and end the thread."""
        self._closed.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            last = self._closed.is_set()
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - costs go on being learned, and are written next time
                log.warning("costs could not be kept just now: %s", type(error).__name__)
            if last:
                return
            self._closed.wait(EVERY_S)

    def _step(self) -> None:
        if not self._read:
            self._book.teach(record_of(cost) for cost in self._database.run(read, self._hardware))
            self._read = True
        self._unwritten |= {record.model: record for record in self._book.changed()}
        if self._unwritten:
            self._database.run(put, costs_of(list(self._unwritten.values())), datetime.now(UTC))
            self._unwritten.clear()


def record_of(cost: Cost) -> CostRecord:
    """What the engine takes of what was kept."""
    return CostRecord(cost.model, cost.hardware, dict(cost.state), cost.price)


def costs_of(records: Sequence[CostRecord]) -> list[Cost]:
    """What is kept of the engine's records."""
    return [Cost(one.device, one.model, one.price, one.state) for one in records if one.price is not None]
