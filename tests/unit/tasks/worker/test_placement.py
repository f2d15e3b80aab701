"""Whose messages a worker pulls: the order of claims, when a model spreads, and that nothing is left by all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks import keys
from tasks.plan import Plan, Section, Source
from tasks.queues import TYPICAL_MS, queue_names, split
from tasks.survey import Choice, Place, Survey, Waiting
from tasks.worker.placement import LEAST_LOAD_S, PATIENCE_S, UNKNOWN_LOAD_S, choose

XS, M, BULK = "interactive.xs", "interactive.m", "bulk.xs"
PLAN = Plan(
    (
        Section((Source(M, 200.0), Source(XS, 2.0)), room_ms=1000.0, jobs=50),
        Section((Source(BULK, 2.0),), room_ms=500.0, jobs=40, least=1),
    ),
    cap_ms=1000.0,
)


def _taken(choice: Choice) -> list[tuple[str, str]]:
    """Queue and model in the order in which they are pulled."""
    return [(source.queue, model) for source in choice.plan.sources for model in source.models or ()]


def _choose(*waiting: Waiting, places: Sequence[Place] = (), here: Sequence[str] = ()) -> Choice:
    return choose(PLAN, Survey(waiting, tuple(places)), here)


def test_models_that_are_here_come_before_those_that_are_nowhere_in_whatever_bucket() -> None:
    choice = _choose(Waiting(M, "cold", 5, 1.0), Waiting(M, "mine", 1), Waiting(XS, "mine", 1), here=["mine"])
    assert _taken(choice) == [(M, "mine"), (XS, "mine"), (M, "cold")]
    assert not choice.ring


def test_of_equal_claims_the_one_without_a_turn_for_longest_is_first() -> None:
    choice = _choose(Waiting(XS, "b", 1, 1.0), Waiting(XS, "a", 1, 2.0), Waiting(XS, "c", 1, 0.5))
    assert _taken(choice) == [(XS, "a"), (XS, "b"), (XS, "c")]


def test_the_lanes_keep_their_order_their_room_and_their_least() -> None:
    choice = _choose(Waiting(BULK, "mine", 1), Waiting(XS, "cold", 1), here=["mine"])
    assert _taken(choice) == [(XS, "cold"), (BULK, "mine")]
    assert [(s.room_ms, s.jobs, s.least) for s in choice.plan.sections] == [(1000.0, 50, 0), (500.0, 40, 1)]


def test_a_model_of_others_is_left_to_them_and_they_are_told() -> None:
    choice = _choose(Waiting(XS, "x", 3), places=[Place("home", {"x": 2.0}), Place("other", {"y": 2.0})])
    assert _taken(choice) == []
    assert choice.ring == (keys.own_bell("home"),)


def test_a_model_that_others_have_too_is_still_ours() -> None:
    assert _taken(_choose(Waiting(XS, "x", 3), places=[Place("home", {"x": 2.0})], here=["x"])) == [(XS, "x")]


@pytest.mark.parametrize(("count", "homes", "taken"), [(11, 1, False), (12, 1, True), (12, 2, False), (22, 2, True)])
def test_a_backlog_longer_than_a_load_is_shared(count: int, homes: int, taken: bool) -> None:
    places = [Place(f"home{n}", {"x": 2.0}) for n in range(homes)]
    assert bool(_taken(_choose(Waiting(M, "x", count), places=places))) is taken


def test_the_backlog_of_a_model_is_that_of_all_buckets_and_lanes() -> None:
    few = (Waiting(M, "x", 6), Waiting(BULK, "x", 510))
    assert _taken(_choose(*few, places=[Place("home", {"x": 2.0})])) == [(M, "x"), (BULK, "x")]


def test_one_job_waits_for_an_idle_home_however_dear_it_is() -> None:
    queue = "interactive.xl"
    plan = Plan((Section((Source(queue, TYPICAL_MS[split(queue)[1]]),), 1000.0, 10),), 1000.0)
    survey = Survey((Waiting(queue, "x", 1),), (Place("home", {"x": 2.0}),))
    assert _taken(choose(plan, survey, ())) == []


@pytest.mark.parametrize(("busy_ms", "taken"), [((2500.0,), True), ((1500.0,), False), ((2500.0, 100.0), False)])
def test_a_job_does_not_wait_longer_for_the_least_busy_home_than_for_a_load(
    busy_ms: tuple[float, ...], taken: bool
) -> None:
    places = [Place(f"home{n}", {"x": 2.0}, busy) for n, busy in enumerate(busy_ms)]
    assert bool(_taken(_choose(Waiting(XS, "x", 1), places=places))) is taken


@pytest.mark.parametrize(("said", "load_s"), [(None, UNKNOWN_LOAD_S), (0.0, LEAST_LOAD_S), (9.0, 9.0)])
def test_a_load_takes_what_it_took_or_a_guess_and_never_nothing(said: float | None, load_s: float) -> None:
    for busy_ms, taken in ((load_s * 1000 - 1, False), (load_s * 1000 + 1, True)):
        choice = _choose(Waiting(XS, "x", 1), places=[Place("home", {"x": said}, busy_ms)])
        assert bool(_taken(choice)) is taken


def test_what_had_no_turn_for_long_comes_before_what_is_here() -> None:
    late = PATIENCE_S + 0.1
    waiting = (Waiting(XS, "mine", 100), Waiting(XS, "cold", 1, late), Waiting(XS, "theirs", 1, late + PATIENCE_S))
    choice = _choose(*waiting, places=[Place("home", {"theirs": 1.0})], here=["mine"])
    assert _taken(choice) == [(XS, "theirs"), (XS, "cold"), (XS, "mine")]


@pytest.mark.parametrize("load_s", [1.0, 60.0])
def test_a_home_has_time_to_see_that_its_model_is_late_and_as_long_as_a_load_would_take(load_s: float) -> None:
    places, bound = [Place("home", {"x": load_s})], PATIENCE_S + max(PATIENCE_S, load_s)
    assert _taken(_choose(Waiting(XS, "x", 1, bound - 0.1), places=places)) == []
    assert _taken(_choose(Waiting(XS, "x", 1, bound + 0.1), places=places)) == [(XS, "x")]


def test_messages_that_name_no_model_are_pulled_by_whoever_comes() -> None:
    plan = Plan((Section((Source("jobs.sweep"),), 1e12, 8),), 0.0)
    survey = Survey((Waiting("jobs.sweep", "", 3),), (Place("home", {"x": 1.0}),))
    assert _taken(choose(plan, survey, ())) == [("jobs.sweep", "")]


_MODELS = st.sampled_from(["", "a", "b", "c", "d"])
_WAITING = st.builds(Waiting, st.sampled_from(queue_names()), _MODELS, st.integers(1, 5000), st.floats(0.0, 100.0))
_WORKERS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.none() | st.floats(0.0, 100.0)), min_size=1, max_size=4
)
_BUSY = st.floats(0.0, 1e6)


def _full_plan() -> Plan:
    lanes = {lane: tuple(Source(q, 1.0) for q in queue_names() if q.startswith(lane)) for lane in ("inter", "bulk")}
    return Plan(tuple(Section(sources, 1000.0, 10) for sources in lanes.values()), 1000.0)


def _unique(waiting: list[Waiting]) -> tuple[Waiting, ...]:
    return tuple({(one.queue, one.model): one for one in waiting}.values())


@given(st.lists(_WAITING, max_size=20), _WORKERS, st.data())
def test_every_message_is_named_by_some_live_worker_however_they_are_placed(
    waiting: list[Waiting], workers: list[dict[str, float | None]], data: st.DataObject
) -> None:
    """So nothing is left by all: if each pulls in turn, all that waits is taken."""
    rows, busy = _unique(waiting), [data.draw(_BUSY) for _ in workers]
    named: set[tuple[str, str]] = set()
    for number, models in enumerate(workers):
        others = [Place(str(n), theirs, busy[n]) for n, theirs in enumerate(workers) if n != number]
        named |= set(_taken(choose(_full_plan(), Survey(rows, tuple(others)), models)))
    assert named == {(one.queue, one.model) for one in rows}


@given(st.lists(_WAITING, max_size=20), _WORKERS, _BUSY)
def test_a_choice_names_each_list_once_and_only_what_waits_and_says_whom_it_leaves_the_rest(
    waiting: list[Waiting], workers: list[dict[str, float | None]], busy_ms: float
) -> None:
    rows = _unique(waiting)
    places = tuple(Place(str(n), models, busy_ms) for n, models in enumerate(workers[1:]))
    choice = choose(_full_plan(), Survey(rows, places), workers[0])
    taken = _taken(choice)
    assert len(taken) == len(set(taken))
    left = {(one.queue, one.model) for one in rows} - set(taken)
    assert not left & {(one.queue, one.model) for one in rows if one.model in workers[0] or not one.model}
    homes = {keys.own_bell(place.worker) for place in places for _, model in left if model in place.models}
    assert set(choice.ring) == homes
    assert bool(left) == bool(homes)


@given(st.lists(_WAITING, max_size=20), _WORKERS)
def test_nothing_waits_beyond_twice_the_patience_or_a_load(
    waiting: list[Waiting], workers: list[dict[str, float | None]]
) -> None:
    rows = _unique(waiting)
    places = tuple(Place(str(n), models) for n, models in enumerate(workers))
    taken = _taken(choose(_full_plan(), Survey(rows, places), ()))
    for one in rows:
        said = [place.models[one.model] for place in places if one.model in place.models]
        bound = PATIENCE_S + max([PATIENCE_S, *(UNKNOWN_LOAD_S if load_s is None else load_s for load_s in said)])
        assert one.unserved_s <= bound or (one.queue, one.model) in taken


def test_a_declined_model_is_left_to_whoever_could_have_it_however_late() -> None:
    places = [Place("could", {}), Place("cannot", {}, declined=frozenset({"x"}))]
    survey = Survey((Waiting(XS, "x", 3, 100.0),), tuple(places))
    choice = choose(_full_plan(), survey, (), {"x"})
    assert _taken(choice) == []
    assert choice.ring == (keys.own_bell("could"),)


def test_a_model_that_all_decline_is_taken_so_that_its_jobs_fail_with_the_reason() -> None:
    places = (Place("cannot", {"x": None}, declined=frozenset({"x"})),)
    assert _taken(choose(_full_plan(), Survey((Waiting(XS, "x", 3),), places), (), {"x"})) == [(XS, "x")]
    assert _taken(choose(_full_plan(), Survey((Waiting(XS, "x", 3),)), (), {"x"})) == [(XS, "x")]


def test_nothing_is_left_to_a_worker_that_declines_it() -> None:
    places = (Place("failing", {"x": None}, declined=frozenset({"x"})),)
    assert _taken(choose(_full_plan(), Survey((Waiting(XS, "x", 3),), places), ())) == [(XS, "x")]


@given(st.lists(_WAITING, max_size=20), _WORKERS, st.data())
def test_every_message_is_named_by_some_live_worker_whatever_they_decline(
    waiting: list[Waiting], workers: list[dict[str, float | None]], data: st.DataObject
) -> None:
    rows = _unique(waiting)
    declined = [data.draw(st.frozensets(st.sampled_from(["a", "b", "c", "d"]))) for _ in workers]
    places = [Place(str(n), models, declined=declined[n]) for n, models in enumerate(workers)]
    named: set[tuple[str, str]] = set()
    for number, models in enumerate(workers):
        others = tuple(place for place in places if place.worker != str(number))
        choice = choose(_full_plan(), Survey(rows, others), models, declined[number])
        taken = set(_taken(choice))
        named |= taken
        able = {model for model in "abcd" if any(model not in place.declined for place in others)}
        assert not any(model in declined[number] and model in able for _, model in taken)
        assert len(taken) == len(rows) or choice.ring
    assert named == {(one.queue, one.model) for one in rows}
