"""What a child has learned of its models outlives it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from catalog.schema import CostCoefficients, EncodeFacts, Spec, Tasks
from engine.costs import CostBook, Pass, Ran
from tasks.child.costs import CostKeeper
from tasks.db import Database
from tasks.messages import Submission
from tasks.store.costs import Cost, prices, put, read

if TYPE_CHECKING:
    from tests.integration.tasks.child.conftest import StartChild

SPEC = Spec(id="m", family="fake", tasks=Tasks(encode=EncodeFacts(dims=8)), parameters=10**6, max_length=64)


def seen(database: Database, model: str) -> int:
    """How many passes of the model the kept state is of, on whatever hardware this is."""
    rows = database.run(lambda conn: conn.exec_driver_sql("SELECT DISTINCT hardware FROM costs").scalars().all())
    states = [cost.state for kind in rows for cost in database.run(read, kind) if cost.model == model]
    return sum(int(fit[-1]) for state in states for _, _, _, fit, _ in state["fits"])


def test_records_survive_a_restart_of_the_child(
    start_child: StartChild,
    database: Database,
    new_job: Callable[..., Submission],
    texts: Callable[..., bytes],
) -> None:
    for _ in range(2):
        child = start_child({"slow": {"seconds_per_cost": 0.001}})
        for _ in range(12):
            child.run(new_job(model="slow", inputs=texts("one")))
            child.done(1)
        child.send("stop")
        assert child.ended()

    # Neither child ran so many by itself; a few are still held as surprises of a beginning.
    assert 12 < seen(database, "slow") <= 24


def test_what_is_written_last_is_there_when_the_keeper_has_ended(database: Database) -> None:
    book = CostBook("cpu")
    keeper = CostKeeper(database, book, "cpu")
    keeper.start()
    for _ in range(10):
        book.observe(Ran("m", Pass.RUN, [10, 20], True, 0.05), SPEC)
    keeper.close(10)

    assert database.run(prices, {"cpu"}) == {("cpu", "m"): book.price("m")}


class Warned(logging.Handler):
    """Lets a test wait for a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.event.set()


@pytest.fixture
def warned() -> Iterator[Warned]:
    handler, log = Warned(), logging.getLogger("tasks.child.costs")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def test_what_was_learned_while_the_database_was_away_is_written_later(database: Database, warned: Warned) -> None:
    database.run(lambda conn: conn.exec_driver_sql("ALTER TABLE costs RENAME TO away").close())
    book = CostBook("cpu")
    for _ in range(10):
        book.observe(Ran("m", Pass.RUN, [10, 20], True, 0.05), SPEC)
    keeper = CostKeeper(database, book, "cpu")
    keeper.start()
    assert warned.event.wait(10)
    database.run(lambda conn: conn.exec_driver_sql("ALTER TABLE away RENAME TO costs").close())
    keeper.close(10)

    assert database.run(prices, {"cpu"}) == {("cpu", "m"): book.price("m")}


def test_kept_numbers_that_nobody_understands_are_passed_over(database: Database) -> None:
    price = CostCoefficients(base=1, per_token=1)
    database.run(put, [Cost("cpu", "m", price, {"version": 99}), Cost("cpu", "n", price, {})], datetime.now(UTC))
    book = CostBook("cpu")
    keeper = CostKeeper(database, book, "cpu")
    keeper.start()
    keeper.close(10)

    assert book.price("m") is None
