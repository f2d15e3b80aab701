"""Every family at once in one engine: items of all kinds, all four verbs, and less memory than all models take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from catalog.loader import Catalog
from catalog.options import parse_options
from catalog.schema import Spec
from catalog.terms import Lane, Verb
from engine.device import CpuDevice
from engine.engine import Engine, EngineLimits
from engine.errors import EngineError
from engine.eviction import EvictionPolicy
from engine.snapshot import EngineSnapshot, Phase
from engine.types import Finished, Item, Output, Work
from tests.adapters.case import Case, Payload, agree
from tests.adapters.conftest import FAMILIES, cases_of
from tests.unit.engine.recorder import Recorder

MIB = 2**20
BUDGET = 1350 * MIB
"""A little more than the largest of them takes by itself."""


@dataclass(frozen=True)
class Job:
    """A case as a job: its items, and last one that cannot be read."""

    model: str
    case: Case
    spec: Spec
    payloads: Sequence[Payload]

    def work(self, name: str, number: int) -> Work:
        options = parse_options(self.spec, self.case.verb, self.spec.run, self.case.options)
        items = tuple(Item(i, payload, 20, 20.0) for i, payload in enumerate(self.payloads))
        lane = Lane.BULK if number % 3 == 0 else Lane.INTERACTIVE
        ident = f"{name}-{self.model}-{self.case.verb.value}"
        return Work(ident, self.model, self.case.verb, items, options, lane, 5, arrived=time.monotonic())


def jobs() -> list[Job]:
    """For each family that can run here its first case, and the first of another verb on the same model."""
    found = []
    for family in FAMILIES:
        cases = [case for case in cases_of(family) if case.needs is None or case.needs() is None]
        verbs: dict[Verb, Case] = {}
        for case in cases:
            if case.model is cases[0].model and case.load == cases[0].load:
                verbs.setdefault(case.verb, case)
        for case in verbs.values():
            spec = case.model()[0]
            spec = spec.model_copy(update={"id": f"small/{family}", "load": {**spec.load, **case.load}})
            found.append(Job(spec.id, case, spec, [*case.items()[:2], case.bad[0]]))
    return found


class Patient(Recorder):
    """Waits for as long as all the loads may take on a busy machine."""

    patience_s = 240.0


@dataclass(frozen=True)
class Together:
    """What came of two rounds of all jobs, and the engine that is still there."""

    engine: Engine
    recorder: Recorder
    jobs: Sequence[Job]
    rounds: Sequence[dict[str, Finished]]
    between: EngineSnapshot

    def of(self, job: Job) -> list[Finished]:
        return [done[f"{job.model}-{job.case.verb.value}"] for done in self.rounds]


@pytest.fixture(scope="module")
def together() -> Iterator[Together]:
    all_jobs = jobs()
    folders = {job.model: job.case.model()[1] for job in all_jobs}
    catalog = Catalog([*{job.model: job.spec for job in all_jobs}.values()])
    limits = EngineLimits(budget_bytes=BUDGET, loaders=2, host_lanes=2)
    recorder = Patient()
    engine = Engine(
        catalog,
        CpuDevice(),
        limits,
        recorder,
        eviction=EvictionPolicy(min_stay_s=0.0, pace_s=0.0),
        find=lambda spec: folders[spec.id],
    )
    engine.start()
    try:
        rounds = []
        for name, order in (("first", all_jobs), ("second", all_jobs[::-1])):
            works = [job.work(name, number) for number, job in enumerate(order)]
            assert engine.submit(works) == []
            done = recorder.results(*works)
            rounds.append({one.work.id.removeprefix(f"{name}-"): one for one in done})
        assert engine.drain(60)
        yield Together(engine, recorder, all_jobs, rounds, engine.snapshot())
    finally:
        engine.stop()
    left = engine.snapshot().ledger
    assert (left.weights, left.lent) == (0, 0), "a stopped engine holds nothing"


def test_every_family_that_can_run_here_has_a_part_in_it(together: Together) -> None:
    assert {job.spec.family for job in together.jobs} >= set(FAMILIES) - {"vllm"}
    assert {job.case.verb for job in together.jobs} == set(Verb)


def test_every_item_is_answered_and_a_bad_one_fails_alone(together: Together) -> None:
    for job in together.jobs:
        for done in together.of(job):
            assert len(done.outcomes) == len(job.payloads)
            for outcome in done.outcomes[:-1]:
                assert isinstance(outcome, Output), (job.model, outcome)
            last = done.outcomes[-1]
            assert isinstance(last, EngineError), job.model
            assert not last.retryable


def test_answers_are_the_same_in_other_company(together: Together) -> None:
    for job in together.jobs:
        first, second = together.of(job)
        for one, other in zip(first.outcomes[:-1], second.outcomes[:-1], strict=True):
            assert isinstance(one, Output)
            assert isinstance(other, Output)
            assert agree(job.case.found(one), job.case.found(other), job.case.tolerance) is None, job.model


def test_models_made_room_for_each_other_within_the_budget(together: Together) -> None:
    states = together.between.models
    assert sum(state.evictions for state in states) >= 5
    assert all(state.phase in (Phase.RESIDENT, Phase.ABSENT) for state in states)
    assert together.between.ledger.weights <= BUDGET


def test_nothing_is_lent_or_held_when_all_is_answered(together: Together) -> None:
    found = together.between
    assert (found.ledger.lent, found.sequences, found.running) == (0, 0, 0)
    assert (found.waiting_works, found.waiting_items) == (0, 0)
    assert not any(state.leases or state.activations for state in found.models)
    # Of models that the host's cores run, the books tell as of host memory; on a CPU it is the same.
    assert found.ledger.weights == sum(state.bytes + state.host_bytes for state in found.models)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "vllm"])
def test_a_job_that_is_cancelled_midway_leaves_its_slot_to_the_next(together: Together, family: str) -> None:
    job = next(job for job in together.jobs if job.spec.family == family)
    engine, recorder = together.engine, together.recorder
    gone = job.work(f"gone-{family}", 1)
    begun = len(recorder.started)
    engine.submit([gone])
    recorder.until(lambda: any(batch.model == job.model for batch in recorder.started[begun:]))
    cancelled = engine.cancel([gone.id])
    kept = job.work(f"kept-{family}", 1)
    engine.submit([kept])
    (done,) = recorder.results(kept)
    assert isinstance(done.outcomes[0], Output)
    assert engine.drain(60)
    assert (gone.id in recorder.done) is (cancelled == [])
    found = engine.snapshot()
    assert (found.ledger.lent, found.sequences, found.running) == (0, 0, 0)
