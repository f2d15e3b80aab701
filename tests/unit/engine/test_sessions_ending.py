"""Sequences that end before their time, and what is given back when they have."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.engine import Engine
from engine.snapshot import Phase
from engine.types import Work
from tests.unit.engine.generating import Steps, generator, settled, state, texts
from tests.unit.engine.recorder import PATIENCE_S, Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


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


def test_an_idle_session_gives_its_lease_back(make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork) -> None:
    engine = make_engine({"g": generator(new_tokens=2, bytes=600), "m": {"bytes": 600}})
    work = prompt("one")
    engine.submit([work])
    recorder.results(work)
    assert settled(engine)
    assert state(engine).phase is Phase.RESIDENT


def test_stop_gives_back_what_sequences_hold(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork, steps: Steps
) -> None:
    engine = make_engine({"g": generator(new_tokens=4000, step_seconds=0.001, cache_bytes=0)})
    engine.submit([prompt("one"), prompt("two")])
    steps.until(3)
    engine.stop(timeout_s=5.0)
    assert steps.caches == 0
    assert engine.snapshot().ledger.weights == 0
