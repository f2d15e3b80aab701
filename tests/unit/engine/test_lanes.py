"""A lane that nothing keeps busy wakes when something may run, and does not end without a word."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from catalog.terms import Lane
from engine.adapters.fake import FakeAdapter
from engine.engine import Engine
from engine.scheduler import Policy
from engine.types import Batch, Output, Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


class NoException(BaseException):
    """As a panic of a Rust library is none."""


def test_the_lane_kept_free_for_interactive_work_takes_bulk_work_once_none_is_expected(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, second = FakeAdapter.run, threading.Event()

    def held(self: FakeAdapter, batch: Batch) -> Any:
        if batch.entries[0].item.payload["text"] == "second":
            second.set()
        elif batch.lane is Lane.BULK:
            # Nothing else wakes the other lane meanwhile.
            assert second.wait(PATIENCE_S)
        return run(self, batch)

    monkeypatch.setattr(FakeAdapter, "run", held)
    engine = make_engine(lanes=2, batch_items=1, policy=Policy(heed_s=0.2))
    interactive = now_work("interactive")
    engine.submit([interactive])
    recorder.results(interactive)
    works = [now_work(text, lane=Lane.BULK) for text in ("first", "second")]
    engine.submit(works)
    assert all(isinstance(found.outcomes[0], Output) for found in recorder.results(*works))


def test_a_lane_that_meets_what_is_no_exception_gives_the_device_up(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise NoException

    monkeypatch.setattr(recorder, "batch_ended", fail)
    engine = make_engine()
    engine.submit([now_work()])
    recorder.until(lambda: bool(recorder.lost))
    assert engine.snapshot().lost


def test_a_family_bounds_how_many_items_a_batch_may_have(
    make_engine: MakeEngine, recorder: Recorder, now_work: MakeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeAdapter, "most_items", 2)
    work = now_work(*(f"text {i}" for i in range(5)))
    make_engine().submit([work])
    recorder.results(work)
    assert sorted(len(batch.entries) for batch in recorder.started) == [1, 2, 2]
