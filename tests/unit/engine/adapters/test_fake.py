from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from catalog.options import EncodeOptions
from catalog.schema import CostCoefficients, Spec
from engine.adapters.fake import FakeAdapter, FakeOptions
from engine.errors import ItemRejected, LoadFailed, LoadReason, TextTooLong
from engine.types import Batch, Entry, Footprint, Item, Outcome, Output, Work

MakeWork = Callable[..., Work]
MakeSpec = Callable[..., Spec]


def fake(spec: Spec, **options: Any) -> FakeAdapter:
    return FakeAdapter(spec, FakeOptions.model_validate(options), None, "fake")


def run(adapter: FakeAdapter, work: Work) -> list[Outcome]:
    return list(adapter.run(Batch(1, work.model, work.verb, tuple(Entry(work, item) for item in work.items))))


def vector(outcome: Outcome) -> np.ndarray[Any, np.dtype[np.float32]]:
    assert isinstance(outcome, Output)
    return np.frombuffer(outcome.fields["dense"]["values"], dtype="<f4")


def test_the_same_text_gives_the_same_vector_in_any_batch_and_instance(
    make_work: MakeWork, make_spec: MakeSpec
) -> None:
    spec = make_spec()
    many = run(fake(spec), make_work("one", "two", "three"))
    assert (vector(many[1]) == vector(run(fake(spec), make_work("two"))[0])).all()
    assert not np.allclose(vector(many[0]), vector(many[1]))


def test_vectors_have_the_specs_dimensions_and_norm_one(make_work: MakeWork, make_spec: MakeSpec) -> None:
    found = vector(run(fake(make_spec()), make_work("text"))[0])
    assert found.shape == (8,)
    assert np.linalg.norm(found) == pytest.approx(1.0)


def test_options_take_effect(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec())
    plain = vector(run(adapter, make_work("text"))[0])
    raw = vector(run(adapter, make_work("text", options=EncodeOptions(normalize=False)))[0])
    short = vector(run(adapter, make_work("text", options=EncodeOptions(dimensions=4)))[0])
    asked = vector(run(adapter, make_work("text", options=EncodeOptions(prompt="query")))[0])
    told = vector(run(adapter, make_work("text", options=EncodeOptions(instruction="find")))[0])
    assert np.allclose(raw / np.linalg.norm(raw), plain)
    assert short.shape == (4,)
    assert (asked == vector(run(adapter, make_work("query: text"))[0])).all()
    assert (told == vector(run(adapter, make_work("find text"))[0])).all()


def test_a_long_text_is_cut_and_marked(make_work: MakeWork, make_spec: MakeSpec) -> None:
    outcome = run(fake(make_spec(max_length=5)), make_work("a b c d"))[0]
    assert isinstance(outcome, Output)
    assert (outcome.tokens, outcome.truncated) == (5, True)
    assert (vector(outcome) == vector(run(fake(make_spec()), make_work("a b c"))[0])).all()


def test_a_long_text_that_may_not_be_cut_is_refused_with_its_length(make_work: MakeWork, make_spec: MakeSpec) -> None:
    work = make_work("a b c d", "a", options=EncodeOptions(truncate=False))
    outcomes = run(fake(make_spec(max_length=5)), work)
    assert isinstance(outcomes[0], TextTooLong)
    assert "6 tokens" in outcomes[0].message
    assert isinstance(outcomes[1], Output)


def test_an_item_without_text_is_refused_and_its_neighbours_are_not(make_work: MakeWork, make_spec: MakeSpec) -> None:
    work = make_work("a", "b")
    bad = Item(index=2, payload={}, length=1, cost_ms=1.0)
    batch = Batch(1, "m", work.verb, (*(Entry(work, item) for item in work.items), Entry(work, bad)))
    outcomes = list(fake(make_spec()).run(batch))
    assert isinstance(outcomes[2], ItemRejected)
    assert isinstance(outcomes[1], Output)


def test_lone_surrogates_do_not_break_it(make_work: MakeWork, make_spec: MakeSpec) -> None:
    assert isinstance(run(fake(make_spec()), make_work("\ud83d"))[0], Output)


def test_it_declares_its_bytes_and_holds_them_only_while_loaded(make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), bytes=100, activation_bytes=3, actual_bytes=120)
    assert adapter.footprint() == Footprint(100, 3)
    adapter.load()
    assert adapter.held() == 120
    adapter.unload()
    assert adapter.held() == 0


def test_a_load_in_progress_ends_when_interrupted(make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), load_seconds=60.0)
    failures: list[LoadFailed] = []

    def load() -> None:
        try:
            adapter.load()
        except LoadFailed as error:
            failures.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    adapter.interrupt()
    thread.join(5.0)
    assert len(failures) == 1


def test_a_load_told_to_fail_fails_with_its_reason_as_often_as_told(make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), faults=[{"kind": "fail_load", "reason": "network", "times": 1}])
    with pytest.raises(LoadFailed) as caught:
        adapter.load()
    assert caught.value.reason is LoadReason.NETWORK
    adapter.load()


def test_a_run_takes_as_long_as_its_padded_cost(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(cost=CostCoefficients(base=1.0, per_token=0.5)), seconds_per_cost=0.001)
    began = time.monotonic()
    run(adapter, make_work(lengths=[4, 100]))
    assert time.monotonic() - began >= 0.101


def test_at_call_counts_calls_and_times_widens_it(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), faults=[{"kind": "error", "at_call": 2, "times": 2}])
    results = []
    for _ in range(4):
        try:
            run(adapter, make_work("a"))
            results.append(True)
        except RuntimeError:
            results.append(False)
    assert results == [True, False, False, True]


def test_a_lost_device_stays_lost(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), faults=[{"kind": "device_lost", "when_text": "bad"}])
    for text in ("bad", "good"):
        with pytest.raises(RuntimeError, match="device-side assert"):
            run(adapter, make_work(text))


def test_a_hanging_call_ends_when_interrupted(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), faults=[{"kind": "hang"}])
    adapter.interrupt()
    with pytest.raises(RuntimeError, match="interrupted"):
        run(adapter, make_work("a"))


def test_a_crash_kills_the_process() -> None:
    program = """
from catalog.loader import Catalog
from catalog.terms import Lane, Verb
from engine.adapters.fake import FakeAdapter, FakeOptions
from engine.types import Batch, Entry, Item, Work
adapter = FakeAdapter(
    Catalog.load().find("roost/fake").spec,
    FakeOptions.model_validate({"faults": [{"kind": "crash"}]}), None, "cpu",
)
item = Item(0, {"text": "a"}, 3, 1.0)
work = Work("w", "m", Verb.ENCODE, (item,), None, Lane.BULK, 5, 0.0)
adapter.run(Batch(1, "m", Verb.ENCODE, (Entry(work, item),)))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == -9


def test_a_typo_in_a_load_option_is_refused() -> None:
    with pytest.raises(ValidationError, match="byte"):
        FakeOptions.model_validate({"byte": 1})
