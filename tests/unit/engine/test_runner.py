from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catalog.options import EncodeOptions, OutputDtype
from catalog.schema import Spec
from engine.adapters.base import Adapter, LoadOptions
from engine.adapters.fake import FakeAdapter, FakeOptions
from engine.errors import (
    DeviceLost,
    EngineError,
    ItemRejected,
    ModelFailed,
    NotFinite,
    OutOfMemory,
    WrongCount,
)
from engine.runner import checked, run_batch
from engine.types import Batch, Entry, Footprint, Outcome, Output, Work

MakeWork = Callable[..., Work]
MakeSpec = Callable[..., Spec]


class Relief:
    """What the runner may ask for when memory runs out, counted. `models` can be evicted."""

    def __init__(self, models: int = 0) -> None:
        self.models = models
        self.cleared = 0

    def clear(self) -> None:
        self.cleared += 1

    def relieve(self) -> bool:
        self.models -= 1
        return self.models >= 0


class Counting(Adapter):
    """Runs a function and counts its calls."""

    def __init__(self, spec: Spec, run: Callable[[Batch], Sequence[Outcome]]) -> None:
        super().__init__(spec, LoadOptions(), None, "fake")
        self._run = run
        self.calls = 0

    def footprint(self) -> Footprint:
        return Footprint(0)

    def load(self) -> None:
        return None

    def unload(self) -> None:
        return None

    def run(self, batch: Batch) -> Sequence[Outcome]:
        self.calls += 1
        return self._run(batch)


def fake(spec: Spec, *faults: dict[str, Any], folder: Path | None = None) -> FakeAdapter:
    adapter = FakeAdapter(spec, FakeOptions.model_validate({"faults": faults}), folder, "fake")
    adapter.load()
    return adapter


def batch_of(*works: Work) -> Batch:
    first = works[0]
    return Batch(1, first.model, first.verb, tuple(Entry(work, item) for work in works for item in work.items))


def run(adapter: Adapter, batch: Batch, relief: Relief | None = None) -> list[Outcome]:
    given = relief or Relief()
    return run_batch(adapter, batch, clear=given.clear, relieve=given.relieve).outcomes


def codes(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.code if isinstance(outcome, EngineError) else "" for outcome in outcomes]


def test_a_good_batch_is_run_once(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = Counting(make_spec(), lambda batch: [Output({"n": e.item.index}) for e in batch.entries])
    outcomes = run(adapter, batch_of(make_work("a", "b")))
    assert outcomes == [Output({"n": 0}), Output({"n": 1})]
    assert adapter.calls == 1


def test_one_culprit_among_eight_fails_alone_and_in_few_calls(make_work: MakeWork, make_spec: MakeSpec) -> None:
    def fails_on_the_third(batch: Batch) -> list[Outcome]:
        if any(entry.item.payload["text"] == "bad" for entry in batch.entries):
            raise ValueError("bad")
        return [Output({"text": entry.item.payload["text"]}) for entry in batch.entries]

    adapter = Counting(make_spec(), fails_on_the_third)
    works = [make_work(text, caller=text) for text in ("1", "2", "bad", "4", "5", "6", "7", "8")]
    outcomes = run(adapter, batch_of(*works))
    assert codes(outcomes) == ["", "", "model_failed", "", "", "", "", ""]
    assert outcomes[3] == Output({"text": "4"})
    assert adapter.calls == 7
    assert isinstance(outcomes[2], ModelFailed)


def test_an_errors_text_goes_neither_to_the_caller_nor_to_the_log(
    make_work: MakeWork, make_spec: MakeSpec, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = fake(make_spec(), {"kind": "error", "when_text": "secret"})
    with caplog.at_level(logging.DEBUG):
        outcomes = run(adapter, batch_of(make_work("my secret"), make_work("plain")))
    assert isinstance(outcomes[0], ModelFailed)
    assert "RuntimeError" in outcomes[0].message
    assert "secret" not in outcomes[0].message
    assert "secret" not in caplog.text


def test_an_engine_error_raised_for_a_batch_reaches_its_item_as_it_is(make_work: MakeWork, make_spec: MakeSpec) -> None:
    def refuses(batch: Batch) -> list[Outcome]:
        raise ItemRejected("no such image")

    outcome = run(Counting(make_spec(), refuses), batch_of(make_work("a")))[0]
    assert isinstance(outcome, ItemRejected)
    assert outcome.message == "no such image"
    assert outcome.__traceback__ is None


def test_an_exit_or_a_panic_in_a_library_is_isolated_too(make_work: MakeWork, make_spec: MakeSpec) -> None:
    def exits(batch: Batch) -> list[Outcome]:
        raise SystemExit(1)

    assert codes(run(Counting(make_spec(), exits), batch_of(make_work("a", "b")))) == ["model_failed"] * 2


def test_nan_fails_its_item_only(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), {"kind": "nan", "when_text": "odd"})
    assert codes(run(adapter, batch_of(make_work("a", "odd", "b")))) == ["", "not_finite", ""]


def test_nan_is_not_hidden_by_an_integer_type(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), {"kind": "nan", "when_text": "odd"})
    work = make_work("a", "odd", options=EncodeOptions(output_dtype=OutputDtype.INT8))
    assert codes(run(adapter, batch_of(work))) == ["", "not_finite"]


@pytest.mark.parametrize(
    "value",
    [
        np.array([1.0, np.nan]),
        {"dims": 1, "dtype": "float32", "values": np.array([np.inf], dtype="<f4").tobytes()},
        {"dims": 1, "dtype": "float16", "values": np.array([np.nan], dtype="<f2").tobytes()},
        float("nan"),
        [{"score": 1.0}, {"score": float("inf")}],
    ],
    ids=["array", "packed", "packed half", "number", "nested"],
)
def test_nan_and_infinity_are_found_wherever_they_are(value: Any) -> None:
    good = Output({"dense": {"dims": 1, "dtype": "float32", "values": b"\0\0\0\0"}, "n": 1.0, "label": "nan"})
    outcomes = checked([good, Output({"x": value}), good])
    assert outcomes[0] is good
    assert isinstance(outcomes[1], NotFinite)
    assert outcomes[2] is good


def test_an_integer_array_is_finite() -> None:
    output = Output({"ids": np.array([1, 2]), "bits": {"dims": 8, "dtype": "ubinary", "values": b"\xff"}})
    assert checked([output]) == [output]


def test_a_model_that_always_gives_too_few_results_fails_its_items_by_name(
    make_work: MakeWork, make_spec: MakeSpec
) -> None:
    adapter = Counting(make_spec(), lambda batch: [])
    outcomes = run(adapter, batch_of(make_work("a", "b")))
    assert all(isinstance(outcome, WrongCount) for outcome in outcomes)


def test_one_batch_with_a_wrong_count_is_run_again_in_halves(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), {"kind": "wrong_count", "at_call": 1})
    assert codes(run(adapter, batch_of(make_work("a", "b")))) == ["", ""]


def test_out_of_memory_first_clears_the_cache(make_work: MakeWork, make_spec: MakeSpec) -> None:
    relief = Relief(models=5)
    adapter = fake(make_spec(), {"kind": "oom", "at_call": 1})
    assert codes(run(adapter, batch_of(make_work("a", "b")), relief)) == ["", ""]
    assert (relief.cleared, relief.models) == (1, 5)


def test_then_it_evicts_idle_models_one_by_one(make_work: MakeWork, make_spec: MakeSpec) -> None:
    relief = Relief(models=5)
    adapter = fake(make_spec(), {"kind": "memory_error", "at_call": 1, "times": 3})
    assert codes(run(adapter, batch_of(make_work("a", "b")), relief)) == ["", ""]
    assert relief.models == 3


def test_then_it_splits_until_the_parts_fit(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), {"kind": "oom", "over_items": 2})
    assert codes(run(adapter, batch_of(make_work(*"abcdefgh")))) == [""] * 8


def test_an_item_that_does_not_fit_alone_fails_alone(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec(), {"kind": "oom", "when_text": "huge"})
    outcomes = run(adapter, batch_of(make_work("a", "huge", "b")))
    assert codes(outcomes) == ["", "out_of_memory", ""]
    assert isinstance(outcomes[1], OutOfMemory)


def test_a_lost_device_is_raised_not_isolated(make_work: MakeWork, make_spec: MakeSpec) -> None:
    def asserts(batch: Batch) -> list[Outcome]:
        raise RuntimeError("CUDA error: device-side assert triggered")

    adapter = Counting(make_spec(), asserts)
    with pytest.raises(DeviceLost):
        run(adapter, batch_of(make_work("a", "b")))
    assert adapter.calls == 1


def test_texts_side_by_side_get_their_own_results(make_work: MakeWork, make_spec: MakeSpec) -> None:
    adapter = fake(make_spec())
    works = [make_work(f"text {n}") for n in range(64)]
    alone = {work.id: run(adapter, batch_of(work))[0] for work in works}
    failures: list[str] = []

    def together(part: list[Work]) -> None:
        for work, outcome in zip(part, run(adapter, batch_of(*part)), strict=True):
            if outcome != alone[work.id]:
                failures.append(work.id)

    threads = [threading.Thread(target=together, args=(works[i : i + 7],)) for i in range(0, 64, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_all_rungs_are_climbed_in_their_order_before_an_item_fails(make_work: MakeWork, make_spec: MakeSpec) -> None:
    rungs: list[str] = []
    idle = [1, 2]

    def runs(batch: Batch) -> list[Outcome]:
        texts = [str(entry.item.payload["text"]) for entry in batch.entries]
        rungs.append(f"run {len(texts)}")
        if "huge" in texts or len(texts) > 2:
            raise OutOfMemory
        return [Output({}) for _ in texts]

    def relieve() -> bool:
        if idle:
            rungs.append("evict")
        return bool(idle and idle.pop())

    adapter = Counting(make_spec(), runs)
    batch = batch_of(make_work("a", "b", "c", "huge"))
    came = run_batch(adapter, batch, clear=lambda: rungs.append("clear"), relieve=relieve)
    assert codes(came.outcomes) == ["", "", "", "out_of_memory"]
    assert not came.clean
    assert rungs == [
        *["run 4", "clear", "run 4", "evict", "run 4", "evict", "run 4"],
        *["clear", "run 2", "clear", "run 2"],
        *["clear", "run 1", "clear", "run 1"],
    ]


def test_a_batch_that_went_well_at_once_is_clean(make_work: MakeWork, make_spec: MakeSpec) -> None:
    relief = Relief()
    adapter = fake(make_spec())
    assert run_batch(adapter, batch_of(make_work("a")), clear=relief.clear, relieve=relief.relieve).clean
