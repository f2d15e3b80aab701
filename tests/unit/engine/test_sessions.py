"""Sequences join and leave between steps, beside the batches of others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.schema import CostCoefficients
from engine.engine import Engine
from engine.types import Work
from tests.unit.engine.generating import Steps, generator, settled, state, texts
from tests.unit.engine.recorder import Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


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
    # As slow as its spec says: what is quicker is soon known to be, and then read in larger parts.
    engine = make_engine({"g": generator(new_tokens=8, read_seconds=0.0001)}, step_ms=11.0)
    long, short = prompt("long " * 400), prompt("short")
    engine.submit([long, short])
    recorder.results(long, short)
    parts = [read for step in steps.log for name, read in step if name == "long" and read]
    assert sum(parts) == 400
    assert max(parts) < 200
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
    assert all(step.step for step in recorder.started)
    assert recorder.outcomes == 3 < sum(len(step.entries) for step in recorder.started)


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
