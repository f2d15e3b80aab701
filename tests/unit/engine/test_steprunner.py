from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog.schema import Spec
from engine.adapters.base import Part, TokenSequence
from engine.adapters.fake_generator import FakeGeneratorAdapter, FakeGeneratorOptions
from engine.errors import DeviceLost, EngineError
from engine.steprunner import Stepped, run_step
from engine.types import Entry, Work

MakeWork = Callable[..., Work]
MakeSpec = Callable[..., Spec]


class Bench:
    """A generator with sequences of these prompts, and what was done for memory, in order."""

    def __init__(self, spec: Spec, works: list[Work], **options: Any) -> None:
        self.adapter = FakeGeneratorAdapter(spec, FakeGeneratorOptions.model_validate(options), None, "fake")
        joined = [self.adapter.join(Entry(work, work.items[0])) for work in works]
        self.sequences = [one for one in joined if isinstance(one, TokenSequence)]
        self.rungs: list[str] = []
        self.idle = 0

    def clear(self) -> None:
        self.rungs.append("clear")

    def relieve(self) -> bool:
        if not self.idle:
            return False
        self.rungs.append("evict")
        self.idle -= 1
        return True

    def step(self) -> Stepped:
        parts = [Part(sequence, sequence.unread) for sequence in self.sequences]
        return run_step(self.adapter, parts, clear=self.clear, relieve=self.relieve)

    @property
    def made(self) -> list[int]:
        return [sequence.made for sequence in self.sequences]


@pytest.fixture
def bench(make_spec: MakeSpec, make_work: MakeWork) -> Callable[..., Bench]:
    def make(*prompts: str, **options: Any) -> Bench:
        return Bench(make_spec("g", family="fake_generator"), [make_work(prompt) for prompt in prompts], **options)

    return make


def codes(stepped: Stepped) -> list[str | None]:
    return [None if o is None else o.code if isinstance(o, EngineError) else "" for o in stepped.outcomes]


def test_a_good_step_is_one_call(bench: Callable[..., Bench]) -> None:
    given = bench("a", "b c")
    stepped = given.step()
    assert (stepped.clean, stepped.fitted, codes(stepped)) == (True, None, [None, None])
    assert (given.adapter.calls, given.made) == (1, [1, 1])


def test_a_sequence_that_ends_has_its_outcome(bench: Callable[..., Bench]) -> None:
    assert codes(bench("a", "b", new_tokens=1).step()) == ["", ""]


def test_an_error_is_isolated_to_its_sequence(bench: Callable[..., Bench]) -> None:
    given = bench("a", "poison", "b", "c", faults=[{"kind": "error", "when_text": "poison"}])
    stepped = given.step()
    assert codes(stepped) == [None, "model_failed", None, None]
    assert given.made == [1, 0, 1, 1]
    assert not stepped.clean
    assert given.rungs == []


def test_a_wrong_count_is_named_and_does_not_spread(bench: Callable[..., Bench]) -> None:
    given = bench("a", "odd", "b", faults=[{"kind": "wrong_count", "when_text": "odd"}])
    assert codes(given.step()) == [None, "wrong_result_count", None]


def test_out_of_memory_first_clears_the_cache(bench: Callable[..., Bench]) -> None:
    given = bench("a", "b", faults=[{"kind": "oom", "at_call": 1}])
    given.idle = 5
    assert codes(given.step()) == [None, None]
    assert given.rungs == ["clear"]


def test_then_it_evicts_idle_models_one_by_one(bench: Callable[..., Bench]) -> None:
    given = bench("a", "b", faults=[{"kind": "memory_error", "at_call": 1, "times": 3}])
    given.idle = 5
    assert codes(given.step()) == [None, None]
    assert given.rungs == ["clear", "evict", "evict"]


def test_then_it_steps_fewer_at_once(bench: Callable[..., Bench]) -> None:
    given = bench("a", "b", "c", "d", faults=[{"kind": "oom", "over_items": 2}])
    given.idle = 1
    stepped = given.step()
    assert codes(stepped) == [None] * 4
    assert stepped.fitted == (2, 2)
    assert given.rungs == ["clear", "evict", "clear", "clear"]


def test_then_it_reads_less_at_once(bench: Callable[..., Bench]) -> None:
    given = bench("word " * 64, most_tokens=20)
    stepped = given.step()
    assert codes(stepped) == [None]
    assert stepped.fitted == (1, 16)
    assert given.sequences[0].read == 16


def test_and_fails_only_what_does_not_fit_by_itself(bench: Callable[..., Bench]) -> None:
    given = bench("a", "huge thing", "b", faults=[{"kind": "oom", "when_text": "huge"}])
    assert codes(given.step()) == [None, "out_of_memory", None]
    assert given.made == [1, 0, 1]


def test_a_lost_device_is_raised(bench: Callable[..., Bench]) -> None:
    given = bench("a", "b", faults=[{"kind": "device_lost"}])
    with pytest.raises(DeviceLost):
        given.step()
    assert given.adapter.calls == 1
