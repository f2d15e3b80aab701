"""What becomes of the jobs of the parent's frames, with a real engine that has not been started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from catalog.live import LiveCatalog
from catalog.loader import Catalog
from engine.device import FakeDevice
from engine.engine import Engine, EngineLimits
from tasks.child.committer import Committer
from tasks.child.hand import Hand
from tasks.child.receiver import Receiver
from tasks.child.reporter import Reporter
from tasks.child.wakes import Wakes
from tasks.db import Database
from tasks.messages import Submission, pack

MakeSubmission = Callable[..., Submission]


class Desk:
    """A receiver between what it is sent and what it says."""

    def __init__(self) -> None:
        self.said: list[list[Any]] = []
        # The committer is never started, so neither server is asked.
        wakes = Wakes(Redis.from_url("redis://127.0.0.1:1"))
        committer = Committer(Database("postgresql://127.0.0.1:1/none"), wakes, lambda _: None)
        self.hand = Hand()
        reporter = Reporter(self.hand, committer, self.say, worker="w", max_attempts=3)
        catalog = LiveCatalog.fixed(Catalog.load([]))
        self.engine = Engine(catalog, FakeDevice(), EngineLimits(budget_bytes=1 << 30, lanes=1), reporter)
        self.receiver = Receiver(catalog, self.engine, self.hand, reporter, self.say)

    def say(self, *parts: Any) -> None:
        self.said.append(list(parts))

    def jobs(self, *jobs: Submission) -> None:
        assert self.receiver.frame(["jobs", [[str(job.id), pack(job), 0] for job in jobs]])


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_job_goes_to_the_engine_and_is_in_hand(desk: Desk, make_submission: MakeSubmission) -> None:
    desk.jobs(make_submission())
    assert (desk.engine.snapshot().waiting_works, len(desk.hand), desk.said) == (1, 1, [])


def test_a_job_that_comes_in_while_the_engine_hands_back_is_returned_too(
    desk: Desk, make_submission: MakeSubmission
) -> None:
    job = make_submission()
    assert desk.engine.hand_back() == []
    desk.jobs(job)
    assert (desk.said, len(desk.hand)) == ([["returned", [str(job.id)]]], 0)


def test_a_job_whose_inputs_cannot_be_read_is_dropped_and_its_neighbours_are_not(
    desk: Desk, make_submission: MakeSubmission
) -> None:
    bad, good = replace(make_submission(), inputs=b"\xc1"), make_submission(id=UUID(int=2))
    desk.jobs(bad, good)
    assert desk.said == [["done", [[str(bad.id), "dropped", 0.0, None]]]]
    assert desk.hand.get(str(good.id)) is not None
