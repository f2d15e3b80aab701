"""What a worker tells the others, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import pytest

from catalog.terms import Lane
from tasks import keys
from tasks.plan import Plan, Section, Source
from tasks.queues import queue_names
from tasks.survey import Place, Survey, Waiting
from tasks.worker.delivery import Delivery
from tasks.worker.holding import FRESH, Held, Holding
from tasks.worker.neighbours import FAILED_S, Neighbours
from tasks.worker.rooms import Limits


class Recorder(Delivery):
    """A delivery that keeps what is told; `others` are alive, unless the broker is away."""

    def __init__(self, others: int = 1) -> None:
        self.others = others
        self.away = False
        self.told: list[tuple[Any, ...] | None] = []

    def place(self, worker: str, data: bytes, lease_s: float) -> int:
        if self.away:
            raise ConnectionError
        self.told.append(tuple(msgpack.unpackb(data)) if data else None)
        return self.others

    def adopt(self, messages: Sequence[Any], earlier: Delivery | None) -> None: ...

    def restore(self, messages: Sequence[Any], *, marked: bool) -> None: ...

    def pause(self) -> None: ...

    def reconsider(self) -> None: ...

    def keep(self) -> None: ...


@pytest.fixture
def holding() -> Holding[None]:
    holding: Holding[None] = Holding(Limits(pull_ms=1000.0, pull_jobs=80, lanes=1))
    holding.ready = True
    return holding


@pytest.fixture
def neighbours(holding: Holding[None]) -> Neighbours:
    return Neighbours("w@host", holding)


def _job(key: str, model: str = "held", cost_ms: float = 100.0) -> Held[None]:
    return Held(key, None, b"", Lane.INTERACTIVE, model, cost_ms, FRESH)


def test_what_is_here_is_what_is_resident_loading_or_held(holding: Holding[None], neighbours: Neighbours) -> None:
    recorder = Recorder()
    neighbours.residents({"ready": 2.5})
    holding.add(_job("one"))
    holding.load_started("loading", 60.0, 0.0)
    neighbours.tell(recorder, 0.0)
    assert recorder.told == [({"ready": 2.5, "loading": None, "held": None}, 100.0)]


def test_a_model_leaves_with_its_last_job(holding: Holding[None], neighbours: Neighbours) -> None:
    for key in ("one", "two"):
        holding.add(_job(key))
    holding.remove("one")
    assert set(neighbours.here) == {"held"}
    holding.remove("two")
    assert not neighbours.here


def test_whether_anybody_else_is_there_is_heard_with_each_word(neighbours: Neighbours) -> None:
    recorder = Recorder(others=0)
    heard = []
    for others in (0, 1, 0):
        recorder.others = others
        neighbours.tell(recorder, 0.0)
        heard.append(neighbours.alone)
    assert heard == [True, False, True]


def test_a_broker_that_is_away_changes_nothing(neighbours: Neighbours) -> None:
    recorder = Recorder()
    neighbours.tell(recorder, 0.0)
    recorder.away = True
    neighbours.tell(recorder, 0.0)
    neighbours.leave(recorder)
    assert not neighbours.alone


def test_after_leaving_nothing_is_told_any_more(neighbours: Neighbours) -> None:
    recorder = Recorder()
    neighbours.leave(recorder)
    neighbours.tell(recorder, 0.0)
    assert recorder.told == [None]


@pytest.mark.parametrize(
    ("job", "others", "told"),
    [
        (_job("new", model="new", cost_ms=1.0), 1, 2),
        (_job("long", model="known", cost_ms=5000.0), 1, 2),
        (_job("more", model="known", cost_ms=1.0), 1, 1),
        (_job("new", model="new", cost_ms=1.0), 0, 1),
    ],
    ids=["a new model", "much work", "more of the same", "nobody to tell"],
)
def test_others_hear_at_once_of_what_changes_their_choice(
    holding: Holding[None], neighbours: Neighbours, job: Held[None], others: int, told: int
) -> None:
    recorder = Recorder(others)
    neighbours.residents({"known": 1.0})
    neighbours.tell(recorder, 0.0)
    holding.add(job)
    neighbours.tell_changes(recorder, 0.0)
    assert len(recorder.told) == told


def test_work_left_to_others_is_looked_at_again_soon(neighbours: Neighbours) -> None:
    plan = Plan((Section((Source("interactive.xs", 2.0),), 100.0, 10),), 100.0)
    survey = Survey((Waiting("interactive.xs", "x", 1),), (Place("home", {"x": 2.0}),))
    neighbours.choose(plan, survey, 10.0)
    assert [neighbours.doubting(now) for now in (10.0, 10.1)] == [False, True]
    neighbours.choose(plan, Survey((), ()), 11.0)
    assert not neighbours.doubting(99.0)


def test_the_more_waits_the_later_an_idle_worker_looks_again(neighbours: Neighbours) -> None:
    plan = Plan((Section((Source("interactive.xs", 2.0),), 100.0, 10),), 100.0)
    models = [f"m{number}" for number in range(128)]
    waiting = tuple(Waiting(queue, model, 1) for queue in queue_names() for model in models)
    neighbours.choose(plan, Survey(waiting, (Place("home", dict.fromkeys(models, 1000.0)),)), 10.0)
    assert [neighbours.doubting(now) for now in (10.5, 10.8)] == [False, True]


def test_busy_is_what_is_left_of_the_work_in_hand(holding: Holding[None]) -> None:
    holding.add(_job("large", cost_ms=1000.0))
    holding.add(_job("other", cost_ms=200.0))
    busy = [holding.busy_ms(0.0)]
    holding.batch_started(1, ["large"], 60.0, 0.0)
    busy.append(holding.busy_ms(0.4))
    holding.batch_ended(1, 0.5)
    busy.append(holding.busy_ms(9.0))
    holding.batch_started(2, ["large"], 60.0, 9.0)
    busy.append(holding.busy_ms(9.1))
    holding.remove("large")
    busy.append(holding.busy_ms(9.1))
    assert busy == pytest.approx([1200.0, 800.0, 700.0, 600.0, 100.0])


def _declined(neighbours: Neighbours, recorder: Recorder, *models: str, now: float = 0.0) -> Any:
    """What is told of these models when they wait, beside a worker that has said nothing of them."""
    plan = Plan((Section((Source("interactive.xs", 2.0),), 100.0, 10),), 100.0)
    waiting = tuple(Waiting("interactive.xs", model, 1) for model in models)
    neighbours.choose(plan, Survey(waiting, (Place("other", {}),)), now)
    neighbours.tell_changes(recorder, now)
    told = recorder.told[-1] if recorder.told else None
    return told[2] if told and len(told) > 2 else []


def test_what_is_declined_is_told_at_once_when_it_waits(neighbours: Neighbours) -> None:
    recorder = Recorder()
    neighbours.tell(recorder, 0.0)
    neighbours.knows(["known", "large"])
    neighbours.unable(["large", "idle"])
    assert _declined(neighbours, recorder, "known", "large", "unknown") == ["large", "unknown"]


def test_a_model_that_failed_is_declined_for_a_while(neighbours: Neighbours) -> None:
    recorder = Recorder()
    neighbours.tell(recorder, 0.0)
    neighbours.failed("bad", 10.0)
    assert _declined(neighbours, recorder, "bad", now=10.0) == ["bad"]
    assert not neighbours.declines("bad", 10.0 + FAILED_S)


def test_a_model_that_is_here_after_all_is_not_declined(neighbours: Neighbours) -> None:
    neighbours.unable(["back"])
    neighbours.residents({"back": 1.0})
    assert not neighbours.declines("back", 0.0)


def test_a_model_that_no_yaml_names_is_declined_by_a_worker_that_finds_none(neighbours: Neighbours) -> None:
    pinned = "org/model@0123"
    neighbours.knows(["known"])
    assert neighbours.declines(pinned, 0.0)
    neighbours.knows(["known"], more=True)
    assert (neighbours.declines(pinned, 0.0), neighbours.declines("unknown", 0.0)) == (False, True)


def test_a_new_child_starts_with_a_clean_sheet(neighbours: Neighbours) -> None:
    neighbours.unable(["large"])
    neighbours.knows(["large"])
    assert not neighbours.declines("large", 0.0)


def test_without_a_child_no_model_is_here_for_the_others(holding: Holding[None], neighbours: Neighbours) -> None:
    """What waits would otherwise wait for a child that takes long to start, since jobs of its model are in hand."""
    recorder = Recorder()
    holding.add(_job("one"))
    neighbours.tell(recorder, 0.0)
    holding.child_lost(0.0)
    neighbours.tell(recorder, 0.0)
    assert [told[0] if told else None for told in recorder.told] == [{"held": None}, {}]


def test_others_are_told_once_of_what_finds_no_room_here(holding: Holding[None], neighbours: Neighbours) -> None:
    """The bell that told of it was heard here, and it may be theirs; what they leave comes back, so not again."""
    for number in range(10):
        holding.add(_job(str(number), model="cold", cost_ms=1.0))
    plan = Plan((Section((Source("interactive.xs", 2.0),), 100.0, 10),), 100.0)
    choices = [
        neighbours.choose(plan, Survey((Waiting("interactive.xs", "cold", count),), (Place("other", {}),)), 0.0)
        for count in (5, 5, 4, 7)
    ]
    assert [choice.plan.sections for choice in choices] == [()] * 4
    assert [choice.ring for choice in choices] == [(keys.own_bell("other"),), (), (), (keys.own_bell("other"),)]
