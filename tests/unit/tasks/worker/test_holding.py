"""The parent's table: what a lost child means for each job, and what may be pulled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.terms import Lane
from tasks.queues import queue_names
from tasks.worker.holding import FRESH, HEED_S, IDLE, INTERRUPTED, OVERRAN, REPEATED, SHY_JOBS, Held, Holding
from tasks.worker.rooms import Limits

LIMITS = Limits(pull_ms=1000.0, pull_jobs=80, lanes=1)
QUEUES = queue_names()


def held(
    key: str, cost_ms: float = 100.0, lane: Lane = Lane.INTERACTIVE, model: str = "m", lost: int = FRESH
) -> Held[None]:
    return Held(key, None, b"", lane, model, cost_ms, lost)


@pytest.fixture
def holding() -> Holding[None]:
    return _holding(LIMITS)


def _holding(limits: Limits) -> Holding[None]:
    """Of a child that is ready and has the model of the jobs."""
    holding: Holding[None] = Holding(limits)
    holding.ready = True
    holding.residents(["m"])
    return holding


def _rooms(holding: Holding[None]) -> dict[str, float]:
    return {section.sources[0].queue.split(".")[0]: section.room_ms for section in holding.plan(QUEUES, 0).sections}


def _told(holding: Holding[None], now: float = 0.0) -> dict[str, int]:
    return {one.id: one.lost for one in holding.child_lost(now)}


def test_only_what_was_in_a_running_batch_has_spent_an_attempt(holding: Holding[None]) -> None:
    for key in ("ran", "ended", "waited"):
        holding.add(held(key))
    holding.batch_started(1, ["ended"], 9.0, 0.0)
    holding.batch_ended(1, 0.0)
    holding.batch_started(2, ["ran"], 9.0, 0.0)
    assert _told(holding) == {"ran": INTERRUPTED, "ended": IDLE, "waited": FRESH}


def test_a_batch_over_its_limit_is_told_apart(holding: Holding[None]) -> None:
    holding.add(held("slow"))
    holding.add(held("other"))
    holding.batch_started(1, ["slow"], 5.0, 0.0)
    holding.batch_started(2, ["other"], 9.0, 0.0)
    assert holding.overdue(4.0) == []
    assert holding.overdue(6.0) == ["batch 1"]
    assert _told(holding, 6.0) == {"slow": OVERRAN, "other": INTERRUPTED}


def test_jobs_whose_model_was_being_loaded_are_doubtful(holding: Holding[None]) -> None:
    holding.add(held("loading", model="big"))
    holding.add(held("other"))
    holding.load_started("big", 5.0, 0.0)
    assert holding.overdue(6.0) == ["load of big"]
    assert (holding.hung(4.0), holding.hung(6.0)) == ([], ["big"])
    assert _told(holding) == {"loading": REPEATED, "other": FRESH}


def test_a_load_that_ended_makes_nobody_doubtful(holding: Holding[None]) -> None:
    holding.add(held("loaded", model="big"))
    holding.load_started("big", 5.0, 0.0)
    holding.load_ended("big")
    assert _told(holding) == {"loaded": FRESH}


@pytest.mark.parametrize("before", [REPEATED, INTERRUPTED, OVERRAN])
def test_what_was_doubtful_stays_so_but_pays_no_second_attempt(holding: Holding[None], before: int) -> None:
    holding.add(held("again", lost=before))
    assert _told(holding) == {"again": REPEATED}


def test_the_next_child_starts_with_nothing_running(holding: Holding[None]) -> None:
    holding.add(held("job"))
    holding.batch_started(1, ["job"], 5.0, 0.0)
    holding.child_lost(0.0)
    assert holding.overdue(100.0) == []
    assert not holding.open
    holding.ready = True
    assert [one.id for one in holding.batch_started(1, ["job"], 5.0, 0.0)] == ["job"]


def test_a_job_starts_once_however_many_batches_it_has(holding: Holding[None]) -> None:
    holding.add(held("job"))
    assert len(holding.batch_started(1, ["job", "unknown"], 5.0, 0.0)) == 1
    assert holding.batch_started(2, ["job"], 5.0, 0.0) == []


def test_nothing_is_pulled_until_the_child_is_ready() -> None:
    holding: Holding[None] = Holding(LIMITS)
    assert not holding.open
    assert holding.plan(QUEUES, 0).sections == ()


def test_held_work_takes_room_and_gives_it_back(holding: Holding[None]) -> None:
    holding.add(held("one", cost_ms=300.0))
    assert _rooms(holding) == {"interactive": 700.0, "bulk": 700.0}
    holding.remove("one")
    assert _rooms(holding) == {"interactive": 1000.0, "bulk": 1000.0}
    assert holding.remove("one") is None


def test_one_job_counts_at_most_the_whole_room_of_a_lane(holding: Holding[None]) -> None:
    holding.add(held("huge", cost_ms=60_000.0))
    assert not holding.open
    wide = _holding(replace(LIMITS, lanes=4))
    wide.add(held("huge", cost_ms=60_000.0))
    assert _rooms(wide)["interactive"] == 3000.0


def test_waiting_bulk_does_not_keep_interactive_out_but_running_bulk_does(holding: Holding[None]) -> None:
    holding.add(held("bulk", cost_ms=1000.0, lane=Lane.BULK))
    assert _rooms(holding) == {"interactive": 1000.0}
    holding.batch_started(1, ["bulk"], 5.0, 0.0)
    assert not holding.open


def test_bulk_gets_one_job_in_when_it_has_none(holding: Holding[None]) -> None:
    holding.add(held("quick", cost_ms=999.0))
    holding.add(held("bulk", cost_ms=5.0, lane=Lane.BULK))
    assert [section.least for section in holding.plan(QUEUES, 0).sections] == [0]
    holding.remove("bulk")
    assert [section.least for section in holding.plan(QUEUES, 0).sections] == [0, 1]


def test_a_hand_full_of_tiny_bulk_jobs_has_places_for_interactive_ones(holding: Holding[None]) -> None:
    for number in range(70):
        holding.add(held(str(number), cost_ms=0.0, lane=Lane.BULK))
    (section,) = holding.plan(QUEUES, 0).sections
    assert section.sources[0].queue.startswith("interactive.")
    assert section.jobs == 10


def test_few_bulk_jobs_are_in_hand_while_interactive_ones_come(holding: Holding[None]) -> None:
    def bulk_jobs() -> list[int]:
        plan = holding.plan(QUEUES, 0, shy=True)
        return [one.jobs for one in plan.sections if one.sources[0].queue.startswith("bulk.")]

    assert bulk_jobs() == [SHY_JOBS]
    for number in range(SHY_JOBS - 1):
        holding.add(held(str(number), cost_ms=0.0, lane=Lane.BULK))
    assert bulk_jobs() == [1]
    holding.add(held("last", cost_ms=0.0, lane=Lane.BULK))
    assert bulk_jobs() == []
    holding.remove("last")
    assert bulk_jobs() == [1], "it moves on as its jobs end"


def test_interactive_jobs_are_expected_for_a_while_after_one(holding: Holding[None]) -> None:
    assert not holding.shy(0.0)
    holding.saw_interactive(10.0)
    assert holding.shy(10.0 + HEED_S)
    assert not holding.shy(10.1 + HEED_S)


def test_no_more_jobs_are_held_than_allowed(holding: Holding[None]) -> None:
    for number in range(80):
        holding.add(held(str(number), cost_ms=0.0))
    assert not holding.open


def test_buckets_take_turns_at_being_first_and_the_interactive_lane_always_is(holding: Holding[None]) -> None:
    first = [holding.plan(QUEUES, turn).sections[0].sources[0].queue for turn in range(5)]
    assert first == [f"interactive.{bucket}" for bucket in ("xs", "s", "m", "l", "xl")]
    assert [section.sources[0].queue for section in holding.plan(QUEUES, 5).sections] == ["interactive.xs", "bulk.xs"]


def test_only_queues_that_are_consumed_are_pulled(holding: Holding[None]) -> None:
    (section,) = holding.plan(["bulk.m"], 3).sections
    assert [source.queue for source in section.sources] == ["bulk.m"]


def test_other_queues_are_served_besides(holding: Holding[None]) -> None:
    holding.add(held("bulk", cost_ms=1000.0, lane=Lane.BULK))
    jobs, others = holding.plan([*QUEUES, "jobs.sweep"], 0).sections
    assert jobs.sources[0].queue == "interactive.xs"
    assert [source.queue for source in others.sources] == ["jobs.sweep"]


def _busy(holding: Holding[None], cost_ms: float = 1800.0) -> None:
    holding.add(held("running", cost_ms=cost_ms))
    holding.batch_started(1, ["running"], 60.0, 0.0)


def test_an_idle_device_listens_and_a_busy_one_does_not(holding: Holding[None]) -> None:
    idle = [holding.idle]
    holding.add(held("job"))
    idle.append(holding.idle)
    holding.batch_started(1, ["job"], 60.0, 0.0)
    idle.append(holding.idle)
    holding.batch_ended(1, 0.1)
    idle.append(holding.idle)
    assert idle == [True, False, False, True]


def test_a_busy_device_s_worker_looks_for_more_only_shortly_before_it_is_free() -> None:
    holding = _holding(replace(LIMITS, pull_ms=2000.0))
    _busy(holding, cost_ms=1800.0)
    assert [holding.wants(now) for now in (0.0, 1.5, 1.6, 9.0)] == [False, False, True, True]


def test_a_large_job_s_next_batch_is_expected_to_take_as_long_as_its_last(holding: Holding[None]) -> None:
    holding.add(held("large", cost_ms=900.0))
    holding.batch_started(1, ["large"], 60.0, 0.0)
    assert not holding.wants(0.1)
    holding.batch_ended(1, 0.1)
    holding.batch_started(2, ["large"], 60.0, 0.1)
    assert holding.wants(0.1)


def test_the_lanes_that_the_child_says_it_has_set_what_it_holds_and_when_it_is_full() -> None:
    holding: Holding[None] = Holding(replace(LIMITS, lanes=0))
    holding.child_ready(2)
    assert _rooms(holding)["interactive"] == 2000.0
    for key in ("one", "two"):
        holding.add(held(key, cost_ms=500.0))
        holding.batch_started(key, [key], 60.0, 0.0)
        assert holding.wants(0.0) is holding.idle is (key == "one")


def test_batches_seen_side_by_side_make_room_for_as_many(holding: Holding[None]) -> None:
    for key in ("one", "two"):
        holding.add(held(key, cost_ms=400.0))
    holding.batch_started(1, ["one"], 60.0, 0.0)
    assert not holding.wants(0.0)
    holding.batch_started(2, ["two"], 60.0, 0.0)
    holding.batch_ended(2, 0.0)
    assert holding.wants(0.0)
    assert holding.idle


def test_a_device_that_only_loads_wants_work_and_listens_for_it(holding: Holding[None]) -> None:
    holding.add(held("waits", cost_ms=60_000.0, model="cold"))
    holding.load_started("cold", 60.0, 0.0)
    assert holding.wants(0.0)
    assert holding.open
    assert holding.idle


def test_without_room_nothing_is_wanted(holding: Holding[None]) -> None:
    holding.add(held("huge", cost_ms=60_000.0))
    assert not holding.wants(0.0)


_STEP = st.tuples(
    st.sampled_from(["add", "remove", "start", "lose", "residents"]), st.integers(0, 9), st.floats(0.0, 3000.0)
)


@given(st.lists(_STEP, max_size=60))
def test_whatever_happens_the_sums_are_those_of_the_jobs_held(steps: list[tuple[str, int, float]]) -> None:
    holding: Holding[None] = Holding(LIMITS)
    for action, number, cost in steps:
        key = str(number)
        if action == "add" and holding.get(key) is None:
            lane = Lane.BULK if number % 2 else Lane.INTERACTIVE
            holding.add(held(key, cost_ms=cost, lane=lane, model="mno"[number % 3]))
        elif action == "remove":
            holding.remove(key)
        elif action == "start":
            holding.batch_started(cost, [key], 1.0, 0.0)
        elif action == "lose":
            holding.child_lost(0.0)
        elif action == "residents":
            holding.residents("mno"[number % 4 :])
    fresh: Holding[None] = Holding(LIMITS)
    fresh.residents(holding.absent.present)
    for one in holding:
        fresh.add(replace(one))
    holding.ready = fresh.ready = True
    ours, theirs = _rooms(holding), _rooms(fresh)
    assert ours == {lane: pytest.approx(room, abs=1e-6) for lane, room in theirs.items()}
    assert (holding.absent.jobs, holding.mixed) == (fresh.absent.jobs, fresh.mixed)
    assert holding.absent.ms == pytest.approx(fresh.absent.ms, abs=1e-6)
    holding.child_lost(0.0)
    assert holding.idle
