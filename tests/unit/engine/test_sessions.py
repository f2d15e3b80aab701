"""Sequences join and leave between steps, alone in their faults, and leave nothing behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from catalog.schema import CostCoefficients, Spec
from catalog.terms import Verb
from engine.adapters.base import LoadOptions, Part
from engine.adapters.fake_generator import FakeGeneratorAdapter
from engine.engine import Engine
from engine.errors import EngineError
from engine.snapshot import ModelState, Phase
from engine.types import Outcome, Output, Work
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]

COST = CostCoefficients(base=1.0, per_token=0.1, per_new=1.0)


class Steps:
    """Watches all steps of generators, and holds them up once told to, each until it is let go."""

    def __init__(self) -> None:
        self.log: list[list[tuple[str, int]]] = []
        self.adapters: list[FakeGeneratorAdapter] = []
        self.open: list[int] = []
        self._changed = threading.Condition()
        self._free: int | None = None

    def hold(self) -> None:
        self._free = 0

    def go(self, steps: int | None = 1) -> None:
        """Let so many more steps run; None: all."""
        with self._changed:
            self._free = None if steps is None or self._free is None else self._free + steps
            self._changed.notify_all()

    def until(self, count: int) -> None:
        """Wait until so many steps have begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.log) >= count, PATIENCE_S), f"{len(self.log)} steps"

    def begin(self, parts: Sequence[Part]) -> None:
        with self._changed:
            self.log.append([(str(part.sequence.entry.item.payload["text"]).split()[0], part.read) for part in parts])
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._free is None or self._free > 0, PATIENCE_S)
            if self._free is not None:
                self._free -= 1

    @property
    def caches(self) -> int:
        return sum(adapter.caches for adapter in self.adapters)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    watched = Steps()
    init, step = FakeGeneratorAdapter.__init__, FakeGeneratorAdapter.step

    def noted(self: FakeGeneratorAdapter, spec: Spec, options: LoadOptions, *rest: Any) -> None:
        init(self, spec, options, *rest)
        watched.adapters.append(self)

    def held(self: FakeGeneratorAdapter, parts: Sequence[Part]) -> Sequence[Outcome | None]:
        watched.begin(parts)
        return step(self, parts)

    monkeypatch.setattr(FakeGeneratorAdapter, "__init__", noted)
    monkeypatch.setattr(FakeGeneratorAdapter, "step", held)
    yield watched
    watched.go(None)


@pytest.fixture
def prompt(now_work: MakeWork) -> MakeWork:
    """A work for the generator `g`."""
    return lambda *texts, **fields: now_work(*texts, **({"model": "g", "verb": Verb.GENERATE} | fields))


def generator(**options: Any) -> dict[str, Any]:
    return {"family": "fake_generator", "cost": COST, "max_length": 4096, **options}


def state(engine: Engine, name: str = "g") -> ModelState:
    return next(found for found in engine.snapshot().models if found.model == name)


def texts(recorder: Recorder, work: Work) -> list[str]:
    return [o.fields["text"] if isinstance(o, Output) else o.code for o in recorder.results(work)[0].outcomes]


def settled(engine: Engine) -> bool:
    """Whether the session closes: no sequence, no lease, nothing lent."""
    if not engine.drain(PATIENCE_S):
        return False
    shot = engine.snapshot()
    return not shot.sequences and not shot.ledger.lent and not state(engine).leases


def test_a_sequence_runs_step_by_step_to_its_end(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=5)})
    work = prompt("one two three")
    engine.submit([work])
    (text,) = texts(recorder, work)
    assert len(text.split()) == 5
    assert steps.log == [[("one", 3)], *[[("one", 0)]] * 4]
    assert settled(engine)
    assert steps.caches == 0


def test_the_listener_hears_of_each_step_with_the_works_in_it(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork
) -> None:
    engine = make_engine({"g": generator(new_tokens=3)}, batch_limit_s=7.0)
    work = prompt("one")
    engine.submit([work])
    recorder.results(work)
    assert [[entry.work.id for entry in batch.entries] for batch in recorder.started] == [[work.id]] * 3
    assert recorder.ended == recorder.started
    assert recorder.limits[1:] == [7.0] * 3


def test_sequences_join_and_leave_between_steps(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=4)})
    first, second = prompt("first"), prompt("second", caller="other")
    steps.hold()
    engine.submit([first])
    steps.until(1)
    steps.go()
    steps.until(2)
    engine.submit([second])
    steps.go(None)
    recorder.results(first, second)
    assert steps.log == [
        [("first", 1)],
        [("first", 0)],
        [("first", 0), ("second", 1)],
        [("first", 0), ("second", 0)],
        [("second", 0)],
        [("second", 0)],
    ]
    assert list(recorder.done) == [first.id, second.id]


def test_what_is_generated_together_equals_what_is_generated_alone(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=20, early_end=True)}, step_ms=8.0)
    prompts = [f"prompt {n} " * (1 + 17 * n) for n in range(12)]
    works = [prompt(text, caller=str(n)) for n, text in enumerate(prompts)]
    engine.submit(works)
    together = [texts(recorder, work) for work in works]
    assert max(len(step) for step in steps.log) > 3
    alone = []
    for text in prompts:
        work = prompt(text)
        engine.submit([work])
        alone.append(texts(recorder, work))
    assert together == alone
    assert len({len(text.split()) for (text,) in alone}) > 3
    assert settled(engine)
    assert steps.caches == 0


def test_a_long_prompt_is_read_in_parts_and_holds_nobody_up(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=8)}, step_ms=11.0)
    long, short = prompt("long " * 400), prompt("short")
    engine.submit([long, short])
    recorder.results(long, short)
    parts = [read for step in steps.log for name, read in step if name == "long" and read]
    assert sum(parts) == 400
    assert max(parts) <= 100
    assert list(recorder.done) == [short.id, long.id]


def test_an_embedding_waits_no_longer_than_one_step(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=50), "m": {"cost": CostCoefficients(base=30.0, per_token=0.0)}})
    warm = now_work()
    engine.submit([warm])
    recorder.results(warm)
    steps.hold()
    work = prompt("one")
    engine.submit([work])
    for number in range(1, 20):
        steps.until(number)
        embedding = now_work(cost_ms=30.0, caller=f"caller {number % 2}")
        engine.submit([embedding])
        before = len(recorder.started)
        steps.go()
        recorder.results(embedding)
        assert recorder.started[before].entries[0].work is embedding
    steps.go(None)
    recorder.results(work)


def test_generation_goes_on_beside_a_flood_of_embeddings(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork
) -> None:
    cost = CostCoefficients(base=2.0, per_token=0.0)
    engine = make_engine({"g": generator(new_tokens=20), "m": {"cost": cost}}, batch_items=1, started=False)
    flood = [now_work(cost_ms=2.0, caller="flood") for _ in range(300)]
    work = prompt("one")
    engine.submit([*flood, work])
    engine.start()
    recorder.results(work, *flood)
    order = [batch.model for batch in recorder.started]
    # It gets its half from the moment that both models are there.
    begins, ends = order.index("g"), len(order) - order[::-1].index("g")
    assert order.count("g") == 20
    assert order[begins:ends].count("m") <= 45


def test_a_cancelled_sequence_ends_with_the_step_that_runs(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=50, cache_bytes=1)})
    steps.hold()
    gone, stays = prompt("gone"), prompt("stays")
    engine.submit([gone, stays])
    steps.until(1)
    steps.go(3)
    steps.until(4)
    assert engine.snapshot().ledger.lent == 2 * 51
    assert engine.cancel([gone.id]) == [gone.id]
    steps.go(1)
    steps.until(5)
    assert [name for name, _ in steps.log[4]] == ["stays"]
    assert engine.snapshot().ledger.lent == 51
    assert steps.caches == 1
    steps.go(None)
    recorder.results(stays)
    assert settled(engine)
    assert gone.id not in recorder.done
    assert steps.caches == 0


def test_the_last_sequence_that_is_cancelled_gives_all_back(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=500, cache_bytes=1)})
    work = prompt("one")
    steps.hold()
    engine.submit([work])
    steps.until(1)
    engine.cancel([work.id])
    steps.go(None)
    assert settled(engine)
    assert steps.caches == 0
    assert len(steps.log) == 1
    assert engine.drain(PATIENCE_S)


def test_a_deadline_ends_a_sequence_between_two_steps(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=4000, step_seconds=0.0005)})
    late = prompt("one", deadline=time.monotonic() + 0.1)
    engine.submit([late])
    assert texts(recorder, late) == ["deadline_passed"]
    assert settled(engine)
    assert 0 < len(steps.log) < 2000
    assert steps.caches == 0


def test_hand_back_names_what_has_had_no_step_and_the_rest_ends_well(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    # The cache of 60 bytes leaves no room for a second one beside the first.
    engine = make_engine({"g": generator(new_tokens=9, cache_bytes=60)})
    running, waiting = prompt("running"), [prompt(f"waiting {n}") for n in range(3)]
    steps.hold()
    engine.submit([running, *waiting])
    steps.until(1)
    steps.go(1)
    steps.until(2)
    assert set(engine.hand_back()) == {work.id for work in waiting}
    steps.go(None)
    assert len(texts(recorder, running)[0].split()) == 9
    assert settled(engine)
    assert steps.caches == 0


def test_a_sequence_waits_until_the_others_leave_it_memory(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=9, cache_bytes=30, bytes=100)})
    works = [prompt(f"p{n}") for n in range(7)]
    engine.submit(works)
    recorder.results(*works)
    assert max(len(step) for step in steps.log) == 3
    assert settled(engine)


def test_a_sequence_that_never_fits_fails_alone_and_says_so(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=9, cache_bytes=30, bytes=100)})
    huge, good = prompt("huge " * 100), prompt("good")
    engine.submit([huge, good])
    (outcome,) = recorder.results(huge)[0].outcomes
    assert isinstance(outcome, EngineError)
    assert outcome.code == "out_of_memory"
    assert "3270 bytes" in outcome.message
    assert len(texts(recorder, good)[0].split()) == 9
    assert settled(engine)


def test_an_idle_model_makes_room_for_a_sequence(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork
) -> None:
    engine = make_engine({"g": generator(new_tokens=9, cache_bytes=50, bytes=100), "m": {"bytes": 600}})
    embedding = now_work()
    engine.submit([embedding])
    recorder.results(embedding)
    work = prompt("one")
    engine.submit([work])
    assert len(texts(recorder, work)[0].split()) == 9
    assert state(engine, "m").evictions == 1


def test_caches_leave_room_for_the_batches_of_others(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    models = {
        "g": generator(new_tokens=9, cache_bytes=10, bytes=100),
        "m": {"bytes": 100, "activation_bytes": 1, "max_length": 500},
    }
    engine = make_engine(models)
    first = now_work()
    engine.submit([first])
    recorder.results(first)
    steps.hold()
    works = [prompt(f"p{n}") for n in range(9)]
    engine.submit(works)
    steps.until(1)
    assert engine.snapshot().ledger.lent == 300
    embedding = now_work(lengths=[500])
    engine.submit([embedding])
    steps.go(1)
    recorder.results(embedding)
    steps.go(None)
    recorder.results(*works)


def test_a_poisoned_sequence_fails_alone(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    faults = [{"kind": "error", "when_text": "poison"}]
    engine = make_engine({"g": generator(new_tokens=4, faults=faults)}, started=False)
    bad, good = prompt("poison"), [prompt(f"good {n}") for n in range(5)]
    engine.submit([*good[:2], bad, *good[2:]])
    engine.start()
    assert texts(recorder, bad) == ["model_failed"]
    assert all(len(texts(recorder, work)[0].split()) == 4 for work in good)
    assert settled(engine)
    assert steps.caches == 0


def test_when_memory_runs_out_fewer_go_at_once_from_then_on(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    faults = [{"kind": "oom", "over_items": 2}]
    engine = make_engine({"g": generator(new_tokens=6, faults=faults)}, started=False)
    works = [prompt(f"p{n}") for n in range(4)]
    engine.submit(works)
    engine.start()
    assert all(len(texts(recorder, work)[0].split()) == 6 for work in works)
    assert [len(step) for step in steps.log[:4]] == [4, 4, 2, 2]
    assert all(len(step) <= 2 for step in steps.log[4:])
    assert settled(engine)


def test_an_item_that_is_no_prompt_fails_without_a_step(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=2)})
    work = prompt("", "good")
    engine.submit([work])
    first, second = texts(recorder, work)
    assert (first, len(second.split())) == ("invalid_item", 2)
    assert len(steps.log) == 2
    assert settled(engine)


def test_a_lost_device_is_told_once(make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork) -> None:
    engine = make_engine({"g": generator(faults=[{"kind": "device_lost", "at_call": 3}])})
    engine.submit([prompt("one"), prompt("two")])
    recorder.until(lambda: bool(recorder.lost))
    engine.stop(timeout_s=0.5)
    assert len(recorder.lost) == 1
    assert recorder.done == {}


def test_a_model_with_sequences_stays_and_takes_no_more_once_another_needs_its_room(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=300, bytes=600), "m": {"bytes": 600}})
    steps.hold()
    first, second = prompt("first"), prompt("second")
    engine.submit([first])
    steps.until(1)
    steps.go(2)
    steps.until(3)
    assert state(engine).leases == 1
    other = now_work()
    engine.submit([other])
    while state(engine).phase is not Phase.LEAVING:
        steps.go(1)
        assert not engine.drain(0.001)
    engine.submit([second])
    steps.go(None)
    recorder.results(first, other, second)
    joined = [len(step) for step in steps.log]
    assert max(joined) == 1
    assert state(engine).loads == 2


def test_an_idle_session_gives_its_lease_back(make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork) -> None:
    engine = make_engine({"g": generator(new_tokens=2, bytes=600), "m": {"bytes": 600}})
    work = prompt("one")
    engine.submit([work])
    recorder.results(work)
    assert settled(engine)
    assert state(engine).phase is Phase.RESIDENT


def test_a_work_alone_has_its_steps_for_itself(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=4), "m": {}}, lanes=2, started=False)
    works = [prompt(f"p{n}") for n in range(3)] + [prompt("alone", alone=True), now_work(), now_work()]
    engine.submit(works)
    engine.start()
    recorder.results(*works)
    shared = [step for step in steps.log if len(step) > 1 and "alone" in dict(step)]
    assert shared == []
    assert sum("alone" in dict(step) for step in steps.log) == 4


def test_items_of_one_work_are_sequences_of_their_own(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=4)})
    work = prompt("a", "b", "c")
    engine.submit([work])
    assert [len(text.split()) for text in texts(recorder, work)] == [4, 4, 4]
    assert len(recorder.calls) == 1
    assert max(len(step) for step in steps.log) == 3


def test_the_seconds_of_a_generation_add_up_to_its_stay(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, now_work: MakeWork
) -> None:
    slow = {"cost": CostCoefficients(base=5.0, per_token=0.0), "seconds_per_cost": 0.001}
    engine = make_engine({"g": generator(new_tokens=12, step_seconds=0.004, load_seconds=0.05), "m": slow})
    works = [prompt("a", "b"), prompt("c"), *(now_work(cost_ms=5.0) for _ in range(10))]
    engine.submit(works)
    for done in recorder.results(*works[:2]):
        spent = done.spent
        assert spent.load + spent.wait + spent.device == pytest.approx(done.finished - done.work.arrived, rel=0.02)
        assert spent.load >= 0.05
        assert spent.device >= 11 * 0.004
        assert spent.wait > 0
    one, other = recorder.results(*works[:2])
    assert one.device_ms == pytest.approx(2 * other.device_ms, rel=0.2)


def test_the_snapshot_counts_sequences_and_what_they_came_to(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=3, cache_bytes=2, bytes=10)})
    steps.hold()
    works = [prompt("one two"), prompt("three")]
    engine.submit(works)
    steps.until(1)
    steps.go(1)
    steps.until(2)
    shot = engine.snapshot()
    assert shot.sequences == 2
    assert state(engine).activations == 2 * (5 + 4)
    steps.go(None)
    recorder.results(*works)
    assert settled(engine)
    work = state(engine).work
    assert work is not None
    assert (work.items, work.real_tokens, work.padded_tokens) == (2, 3 + 2 * 2, 3 + 2 * 2)
    assert work.passes == len(steps.log) == sum(work.ratios)
    assert state(engine).activations == 0


def test_stop_gives_back_what_sequences_hold(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=4000, step_seconds=0.001, cache_bytes=0)})
    engine.submit([prompt("one"), prompt("two")])
    steps.until(3)
    engine.stop(timeout_s=5.0)
    assert steps.caches == 0
    assert engine.snapshot().ledger.weights == 0
