"""What the parent and followers hear of batches and steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import redis

from catalog.options import EncodeOptions
from catalog.terms import Lane, Verb
from engine.types import Batch, Entry, Item, Work
from tasks.child.committer import Committer
from tasks.child.hand import Hand, Held
from tasks.child.reporter import Reporter
from tasks.child.tally import Tally
from tasks.child.wakes import Wakes
from tasks.db import Database

MakeHeld = Callable[..., Held]

WORK = Work("a", "m", Verb.ENCODE, tuple(Item(n, {}, 8, 1.0) for n in range(3)), EncodeOptions(), Lane.BULK, 5, 0.0)
BATCH = Batch(7, "m", Verb.ENCODE, tuple(Entry(WORK, item) for item in WORK.items))
STEP = replace(BATCH, step=True)


class Desk:
    """A reporter with one job of three items in hand, and what it sent."""

    def __init__(self, held: Held) -> None:
        self.sent: list[tuple[object, ...]] = []
        self.held, self.hand, self.tally = held, Hand(), Tally()
        self.hand.add("a", held)
        # Nothing ends here, so neither database nor Valkey is ever asked.
        database = Database("postgresql+psycopg://nobody@127.0.0.1:1/none", 1)
        committer = Committer(database, Wakes(redis.Redis(port=1)), lambda _: None)
        self.reporter = Reporter(
            self.hand, committer, lambda *frame: self.sent.append(frame), worker="w", max_attempts=3, tally=self.tally
        )

    @property
    def batches(self) -> int:
        """How many batches were counted."""
        return sum(sum(row[1]) for row in self.tally.told()["batch_items"]["of"])


@pytest.fixture
def desk(make_held: MakeHeld) -> Desk:
    return Desk(make_held(items=[{"text": "some words"}] * 3))


def test_the_parent_hears_of_a_batch_and_its_jobs(desk: Desk) -> None:
    desk.reporter.batch_started(BATCH, 9.0)
    desk.reporter.batch_ended(BATCH, BATCH.entries)
    assert desk.sent == [("started", 7, ["a"], 9.0), ("ended", 7)]


def test_all_items_of_a_batch_have_run(desk: Desk) -> None:
    desk.reporter.batch_ended(BATCH, BATCH.entries)
    assert (desk.held.done, desk.batches) == (3, 1)


def test_items_that_go_on_after_a_step_have_not_run_yet(desk: Desk) -> None:
    for _ in range(5):
        desk.reporter.batch_ended(STEP, [])
    desk.reporter.batch_ended(STEP, STEP.entries[:1])
    assert desk.held.done == 1


def test_a_step_is_no_batch(desk: Desk) -> None:
    desk.reporter.batch_ended(STEP, STEP.entries)
    assert desk.batches == 0
