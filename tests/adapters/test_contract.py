"""What every family promises, checked on every family there is."""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

import engine.adapters
from catalog.options import EncodeOptions, OutputDtype
from catalog.schema import EncodeFacts, Spec
from engine.adapters.base import Adapter
from engine.device import CpuDevice
from engine.errors import EngineError, ItemRejected
from engine.families import adapter_class
from engine.types import Outcome, Output

LONG = "word " * 5_000
MARGIN = 24 * 2**20
"""Bytes of resident memory that allocators may keep over a cycle of load, run, unload."""

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]


class Cases(Protocol):
    LOAD: dict[str, Any]
    BAD_LOAD: dict[str, Any]
    UNREADABLE: list[object]

    def model(self) -> tuple[Spec, Path | None]: ...

    def texts(self) -> list[str]: ...

    def reference(self, folder: Path | None, texts: list[str], device: str) -> NDArray[np.float32] | None: ...


def cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_every_family_has_cases_and_all_cases_a_family() -> None:
    families = {m.name for m in pkgutil.iter_modules(engine.adapters.__path__)} - {"base"}
    assert {file.stem for file in (Path(__file__).parent / "families").glob("*.py")} == families


def test_a_batch_equals_its_texts_alone(adapter: Adapter, cases: Cases, run: Run, vector: Vector) -> None:
    texts = cases.texts()
    together = [vector(outcome) for outcome in run(adapter, texts)]
    alone = [vector(run(adapter, [text])[0]) for text in texts]
    assert min(cosine(a, b) for a, b in zip(together, alone, strict=True)) > 0.9999


def test_a_text_beside_a_very_long_one_is_as_alone(adapter: Adapter, cases: Cases, run: Run, vector: Vector) -> None:
    text = cases.texts()[1]
    beside = vector(run(adapter, [text, LONG])[0])
    assert cosine(beside, vector(run(adapter, [text])[0])) > 0.9999


def test_order_is_kept(adapter: Adapter, cases: Cases, run: Run, vector: Vector) -> None:
    texts = cases.texts()
    forth = [vector(outcome) for outcome in run(adapter, texts)]
    back = [vector(outcome) for outcome in run(adapter, texts[::-1])]
    assert min(cosine(a, b) for a, b in zip(forth, back[::-1], strict=True)) > 0.9999
    others = [cosine(forth[0], other) for other in forth[1:]]
    assert max(others) < 0.99


def test_vectors_equal_the_librarys_own_call(
    adapter: Adapter, cases: Cases, run: Run, vector: Vector, device: str
) -> None:
    texts = cases.texts()
    expected = cases.reference(adapter.folder, texts, device)
    if expected is None:
        pytest.skip("this family has no library of its own")
    got = np.stack([vector(outcome) for outcome in run(adapter, texts)])
    assert np.abs(got - expected).max() < 1e-5
    assert min(cosine(a, b) for a, b in zip(got, expected, strict=True)) > 0.99999


def test_one_bad_item_fails_alone(adapter: Adapter, cases: Cases, run: Run, vector: Vector) -> None:
    first, second = cases.texts()[:2]
    alone = [vector(outcome) for outcome in run(adapter, [first, second])]
    for bad in cases.UNREADABLE:
        outcomes = run(adapter, [first, bad, second])
        assert isinstance(outcomes[1], ItemRejected)
        assert cosine(vector(outcomes[0]), alone[0]) > 0.9999
        assert cosine(vector(outcomes[2]), alone[1]) > 0.9999


def test_a_batch_of_bad_items_alone_is_answered(adapter: Adapter, run: Run) -> None:
    assert [type(outcome) for outcome in run(adapter, [None, None])] == [ItemRejected] * 2


def test_items_of_one_batch_keep_their_own_options(
    adapter: Adapter, cases: Cases, run: Run, facts: EncodeFacts
) -> None:
    shorter = min(facts.matryoshka, default=None)
    options = [
        EncodeOptions(),
        EncodeOptions(normalize=False),
        EncodeOptions(output_dtype=OutputDtype.FLOAT16),
        EncodeOptions(output_dtype=OutputDtype.BINARY),
        EncodeOptions(dimensions=shorter),
    ]
    texts = cases.texts()[:5]
    outcomes = run(adapter, texts, options)
    for text, own, outcome in zip(texts, options, outcomes, strict=True):
        assert isinstance(outcome, Output)
        alone = run(adapter, [text], [own])[0]
        assert isinstance(alone, Output)
        assert {**outcome.fields["dense"], "values": b""} == {**alone.fields["dense"], "values": b""}
        assert outcome.fields["dense"]["dims"] == (own.dimensions or facts.dims)


@pytest.mark.usefixtures("facts")
def test_a_text_over_the_limit_is_cut_and_marked(adapter: Adapter, run: Run) -> None:
    text = "word " * (adapter.spec.max_length * 4)
    outcome = run(adapter, [text])[0]
    assert isinstance(outcome, Output)
    assert outcome.truncated
    assert outcome.tokens >= adapter.spec.max_length


@pytest.mark.usefixtures("facts")
def test_a_text_over_the_limit_is_refused_if_it_may_not_be_cut(adapter: Adapter, cases: Cases, run: Run) -> None:
    text = "word " * (adapter.spec.max_length * 4)
    outcomes = run(adapter, [text, cases.texts()[0]], EncodeOptions(truncate=False))
    assert isinstance(outcomes[0], EngineError)
    assert outcomes[0].code == "text_too_long"
    assert str(adapter.spec.max_length) in outcomes[0].message
    assert isinstance(outcomes[1], Output)


def test_two_texts_that_differ_only_at_the_end_differ(adapter: Adapter, run: Run, vector: Vector) -> None:
    # At 60 % of the advertised length nothing may be cut in silence.
    body = "word " * int(adapter.spec.max_length * 0.6)
    first, second = run(adapter, [body + "ships", body + "banks"])
    assert cosine(vector(first), vector(second)) < 0.99999
    assert isinstance(first, Output)
    assert not first.truncated


def test_unknown_load_options_are_refused(cases: Cases) -> None:
    spec, _ = cases.model()
    with pytest.raises(ValidationError):
        adapter_class(spec.family).options.model_validate(cases.BAD_LOAD)


def test_what_is_held_is_what_was_declared(adapter: Adapter) -> None:
    held = adapter.held()
    if held is None:
        pytest.skip("this family leaves measuring to the engine")
    declared = adapter.footprint().weights
    assert held * 0.95 <= declared <= held * 1.05


def test_unloading_gives_the_memory_back(cases: Cases, new_adapter: Callable[[Cases], Adapter], run: Run) -> None:
    process, cpu = psutil.Process(), CpuDevice()
    adapter = new_adapter(cases)
    after: list[int] = []
    for _ in range(6):
        adapter.load()
        run(adapter, cases.texts()[:3])
        adapter.unload()
        cpu.clear()
        after.append(process.memory_info().rss)
    assert max(after[3:]) - after[2] < MARGIN


def test_an_unloaded_adapter_holds_nothing(cases: Cases, new_adapter: Callable[[Cases], Adapter]) -> None:
    adapter = new_adapter(cases)
    adapter.load()
    adapter.unload()
    assert not adapter.held()


def test_a_parked_model_takes_nothing_and_comes_back_the_same(
    cases: Cases, new_adapter: Callable[[Cases], Adapter], run: Run, vector: Vector
) -> None:
    adapter = new_adapter(cases)
    adapter.load()
    before = [vector(outcome) for outcome in run(adapter, cases.texts()[:3])]
    held = adapter.held()
    if adapter.park() is None:
        pytest.skip("this family cannot be parked")
    assert not adapter.held()
    adapter.restore()
    after = [vector(outcome) for outcome in run(adapter, cases.texts()[:3])]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert adapter.held() == held
    adapter.unload()


def test_a_parked_model_can_be_dropped_and_loaded_again(
    cases: Cases, new_adapter: Callable[[Cases], Adapter], run: Run, vector: Vector
) -> None:
    adapter = new_adapter(cases)
    adapter.load()
    if adapter.park() is None:
        pytest.skip("this family cannot be parked")
    adapter.unload()
    assert not adapter.held()
    adapter.load()
    assert all(len(vector(outcome)) for outcome in run(adapter, cases.texts()[:3]))
    adapter.unload()


def test_threads_get_what_a_serial_run_gives(adapter: Adapter, cases: Cases, run: Run, vector: Vector) -> None:
    if not adapter.reentrant:
        pytest.skip("this family runs one batch at a time")
    texts = cases.texts()[:6]
    plans = [
        (texts[i % 3 :: i % 4 + 1] + ([LONG] if i % 5 == 0 else []), EncodeOptions(truncate=i % 2 == 0))
        for i in range(16)
    ]
    serial = [run(adapter, plan, options) for plan, options in plans]
    threaded: list[list[Outcome]] = [[] for _ in plans]
    gate = threading.Barrier(len(plans))

    def work(index: int) -> None:
        gate.wait()
        threaded[index] = run(adapter, *plans[index])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for expected, got in zip(serial, threaded, strict=True):
        assert [type(outcome) for outcome in got] == [type(outcome) for outcome in expected]
        for a, b in zip(expected, got, strict=True):
            if isinstance(a, Output):
                assert cosine(vector(a), vector(b)) > 0.99999
