"""Jobs of models that are not there: they keep nobody out, and each such model has its part of their room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.terms import Lane
from tasks.plan import Plan, Section, Source
from tasks.queues import LANES, TYPICAL_MS, queue_names, split
from tasks.survey import Survey, Waiting
from tasks.worker.holding import Held, Holding
from tasks.worker.placement import choose
from tasks.worker.rooms import Limits, apart

LIMITS = Limits(pull_ms=1000.0, pull_jobs=80, lanes=1)
QUEUES = queue_names()
XS, M, BULK = "interactive.xs", "interactive.m", "bulk.xs"


@dataclass(frozen=True)
class Backlog:
    """Messages by queue and model, and a pull of them by a plan, as the script does it but for the order of models."""

    counts: dict[tuple[str, str], int]

    def survey(self) -> Survey:
        return Survey(tuple(Waiting(queue, model, n) for (queue, model), n in self.counts.items() if n))

    def pull(self, plan: Plan) -> list[tuple[str, str]]:
        taken, most, spent, shared = list[tuple[str, str]](), plan.most, 0.0, 0
        for section in plan.sections:
            room = section.room_ms - (0.0 if section.own else spent)
            jobs = section.jobs - (0 if section.own else shared)
            least = section.least
            for source in section.sources:
                want = 0
                if room > 0 and jobs > 0:
                    want = min(jobs, max(1, int(room / source.typical_ms)) if source.typical_ms else most)
                want = min(max(want, least), most)
                for model in source.models if source.models is not None else self._models(source.queue):
                    got = min(want, self.counts.get((source.queue, model), 0))
                    self.counts[source.queue, model] = self.counts.get((source.queue, model), 0) - got
                    taken += [(source.queue, model)] * got
                    cost = got * min(source.typical_ms, plan.cap_ms)
                    want, most, least, room, jobs = want - got, most - got, least - got, room - cost, jobs - got
                    if not section.own:
                        spent, shared = spent + cost, shared + got
        return taken

    def _models(self, queue: str) -> list[str]:
        return [model for (name, model) in self.counts if name == queue]


class Worker:
    """A lone worker that pulls from a backlog."""

    def __init__(self, limits: Limits, present: Sequence[str], counts: Mapping[tuple[str, str], int]) -> None:
        self.holding: Holding[None] = Holding(limits)
        self.holding.ready = True
        self.holding.residents(present)
        self.backlog = Backlog(dict(counts))
        self.serial = 0

    def pull(self) -> list[str]:
        """The models of the messages that one pull takes."""
        plan = self.holding.plan(QUEUES, 0)
        if self.holding.mixed:
            survey = self.backlog.survey()
            counts = {(one.queue, one.model): one.count for one in survey.waiting}
            plan, _ = apart(choose(plan, survey, self.holding.models).plan, counts, self.holding.absent)
        taken = self.backlog.pull(plan)
        for queue, model in taken:
            self.serial += 1
            lane, bucket = split(queue)
            self.holding.add(Held(str(self.serial), None, b"", lane, model, TYPICAL_MS[bucket]))
        return [model for _, model in taken]

    def pull_all(self) -> list[str]:
        """Pull until nothing more comes."""
        taken = list[str]()
        while some := self.pull():
            taken += some
        return taken

    def held(self, model: str) -> int:
        return sum(one.model == model for one in self.holding)


def test_a_flood_of_an_absent_model_leaves_the_room_of_those_that_are_there() -> None:
    worker = Worker(LIMITS, ["here"], {(XS, "cold"): 1100})
    worker.pull_all()
    worker.backlog.counts[XS, "here"] = 3
    assert worker.holding.open
    assert worker.pull() == ["here"] * 3


def test_one_absent_model_leaves_room_for_another() -> None:
    worker = Worker(LIMITS, [], {(XS, "cold"): 1100})
    worker.pull_all()
    worker.backlog.counts[XS, "other"] = 5
    assert worker.pull_all() == ["other"] * 5


def test_a_dear_job_of_an_absent_model_comes_however_full_the_others_room_is() -> None:
    worker = Worker(LIMITS, [], {(M, "cold"): 100})
    worker.pull_all()
    worker.backlog.counts["interactive.xl", "dear"] = 2
    assert worker.pull_all() == ["dear"]


def test_a_model_s_backfill_leaves_room_for_its_interactive_jobs() -> None:
    worker = Worker(LIMITS, [], {(BULK, "cold"): 1000})
    worker.pull_all()
    worker.backlog.counts[XS, "cold"] = 4
    assert worker.pull_all() == ["cold"] * 4


def test_when_a_model_comes_its_jobs_take_the_common_room_and_more_are_pulled() -> None:
    worker = Worker(LIMITS, [], {(M, "cold"): 100})
    before = len(worker.pull_all())
    idle, mixed = [worker.holding.idle], [worker.holding.mixed]
    worker.holding.residents(["cold"])
    assert [*idle, worker.holding.idle, *mixed, worker.holding.mixed] == [True, False, True, False]
    taken = len(worker.pull_all())
    # All the common room, in typical costs, is full now.
    assert (before + taken) * TYPICAL_MS[split(M)[1]] == LIMITS.room_ms


def test_when_a_model_leaves_its_jobs_give_the_common_room_back() -> None:
    worker = Worker(LIMITS, ["here", "other"], {(XS, "here"): 200})
    worker.pull_all()
    assert not worker.holding.open
    worker.holding.residents(["other"])
    worker.backlog.counts[XS, "other"] = 7
    assert worker.pull_all() == ["other"] * 7


def test_a_resident_model_alone_is_pulled_without_a_survey() -> None:
    worker = Worker(Limits(2000.0, 1024, 1), ["here"], {(XS, "here"): 900})
    assert len(worker.pull()) == 256
    assert not worker.holding.mixed


def test_what_found_no_room_is_counted() -> None:
    worker = Worker(LIMITS, [], {(XS, "cold"): 100})
    worker.pull_all()
    rest = worker.backlog.counts[XS, "cold"]
    plan = Plan((Section((Source(XS, 2.0, models=("cold", "")),), 500.0, 50),), 1000.0)
    shared, left = apart(plan, {(XS, "cold"): rest}, worker.holding.absent)
    assert left == rest > 0
    assert [source.models for source in shared.sources] == [("",)]


def test_other_queues_stay_as_they_are() -> None:
    plan = Plan((Section((Source("jobs.sweep"), Source("own", models=("m",))), 9.0, 8),), 0.0)
    assert apart(plan, {}, Holding[None](LIMITS).absent) == (plan, 0)


_MODELS = "abcdef"
_COUNTS = st.dictionaries(
    st.tuples(st.sampled_from(QUEUES), st.sampled_from(_MODELS)), st.integers(1, 400), min_size=1, max_size=12
)
_LIMITS = st.builds(
    Limits, pull_ms=st.sampled_from([50.0, 1000.0, 2000.0]), pull_jobs=st.integers(1, 1200), lanes=st.integers(0, 3)
)


@settings(max_examples=40)
@given(_LIMITS, st.sets(st.sampled_from(_MODELS)), _COUNTS)
def test_whatever_absent_models_flood_a_job_of_one_that_is_there_is_pulled_next(
    limits: Limits, present: set[str], counts: dict[tuple[str, str], int]
) -> None:
    flood = {key: n for key, n in counts.items() if key[1] not in present}
    worker = Worker(limits, [*present, "here"], flood)
    worker.pull_all()
    worker.backlog.counts[XS, "here"] = 1
    assert worker.holding.idle
    assert worker.holding.wants(0.0)
    assert "here" in worker.pull()


@settings(max_examples=40)
@given(_LIMITS, _COUNTS)
def test_no_absent_model_fills_the_room_of_another(limits: Limits, counts: dict[tuple[str, str], int]) -> None:
    wide = replace(limits, pull_jobs=max(limits.pull_jobs, 256))
    worker = Worker(wide, [], counts)
    worker.pull_all()
    worker.backlog.counts[XS, "last"] = 1
    assert worker.pull_all()[-1:] == ["last"]


@settings(max_examples=40)
@given(_LIMITS, _COUNTS, st.lists(st.sampled_from(_MODELS), max_size=8))
def test_no_more_is_held_than_the_limits_say_while_models_come(
    limits: Limits, counts: dict[tuple[str, str], int], coming: list[str]
) -> None:
    worker = Worker(limits, [], counts)
    worker.pull_all()
    present = set[str]()
    for model in coming:
        present.add(model)
        worker.holding.residents(present)
        worker.pull_all()
        assert len(worker.holding) <= limits.pull_jobs + limits.absent_jobs
        for lane in LANES:
            for name in set(_MODELS) - present:
                held = sum(one.model == name and one.lane is lane for one in worker.holding)
                assert held <= max(limits.absent_each, limits.pull_most) + limits.pull_most


@settings(max_examples=40)
@given(_LIMITS, st.integers(1, 400), st.sampled_from(QUEUES))
def test_with_one_model_that_is_there_the_plan_is_what_it_was_but_for_its_most(
    limits: Limits, count: int, queue: str
) -> None:
    worker = Worker(limits, ["here"], {(queue, "here"): count})
    taken = len(worker.pull_all())
    lane, bucket = split(queue)
    ms = min(TYPICAL_MS[bucket], limits.pull_ms)
    jobs = limits.pull_jobs - (limits.pull_jobs // 8 if lane is Lane.BULK else 0)
    assert taken <= min(count, jobs) or taken == 1
    # Full, or nothing is left.
    assert taken == count or taken >= min(jobs, int(limits.room_ms / ms))


@pytest.mark.parametrize("pull_jobs", [1, 2, 3, 1024])
def test_even_the_smallest_hand_has_a_place_for_a_model_that_must_be_loaded(pull_jobs: int) -> None:
    worker = Worker(replace(LIMITS, pull_jobs=pull_jobs), [], {(XS, "cold"): 2000})
    worker.pull_all()
    assert worker.held("cold")
    assert worker.holding.open
