from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from catalog.schema import Spec
from engine.costs import CostBook, Pass, Ran
from engine.passes import Lesson, Passes, PassRan
from engine.snapshot import RATIOS

MakeSpec = Callable[..., Spec]


class Noting(CostBook):
    """A cost book that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.told: list[Ran] = []

    def observe(self, ran: Ran, spec: Spec) -> None:
        self.told.append(ran)


def ran(lengths: Sequence[int] = (8,), **fields: Any) -> PassRan:
    values: dict[str, Any] = {
        "model": "m",
        "items": len(lengths),
        "padded": True,
        "seconds": 0.01,
        "predicted_ms": 10.0,
        "threads": 1,
        "crowded": False,
        "teaches": [Lesson(Pass.RUN, lengths)],
    }
    return PassRan(lengths=lengths, **(values | fields))


def test_totals_are_kept_of_all_and_of_each_model(make_spec: MakeSpec) -> None:
    passes = Passes(Noting())
    for model, lengths in (("m", [10, 6]), ("m", [4]), ("n", [7])):
        passes.add(ran(lengths, model=model), make_spec(model))
    stats, mine = passes.stats, passes.of_model("m")
    assert (stats.batches, stats.items, stats.real_tokens, stats.padded_tokens) == (3, 4, 27, 31)
    assert mine is not None
    assert (mine.passes, mine.items, mine.real_tokens, mine.padded_tokens) == (2, 3, 20, 24)
    assert mine.seconds == pytest.approx(0.02)
    assert mine.predicted_s == pytest.approx(0.02)
    assert passes.of_model("other") is None


def test_a_pass_that_pads_nothing_counts_its_tokens_as_they_are(make_spec: MakeSpec) -> None:
    passes = Passes(Noting())
    passes.add(ran([10, 6], padded=False), make_spec())
    assert (passes.stats.real_tokens, passes.stats.padded_tokens) == (16, 16)


@pytest.mark.parametrize(
    ("seconds", "place"), [(0.001, 0), (0.0025, 0), (0.0026, 1), (0.01, 5), (0.04, 9), (0.041, len(RATIOS))]
)
def test_a_pass_is_counted_by_actual_over_predicted(make_spec: MakeSpec, seconds: float, place: int) -> None:
    passes = Passes(Noting())
    passes.add(ran(seconds=seconds), make_spec())
    work = passes.of_model("m")
    assert work is not None
    assert [i for i, count in enumerate(work.ratios) if count] == [place]
    assert work.ratio_sum == pytest.approx(100 * seconds)


def test_a_pass_without_trouble_teaches_the_cost_book(make_spec: MakeSpec) -> None:
    book = Noting()
    Passes(book).add(ran([3, 4], threads=2, crowded=True, padded=False), make_spec())
    assert book.told == [Ran("m", Pass.RUN, [3, 4], padded=False, seconds=0.01, threads=2, crowded=True)]


def test_a_pass_with_trouble_is_counted_and_teaches_nothing(make_spec: MakeSpec) -> None:
    book = Noting()
    passes = Passes(book)
    passes.add(ran(teaches=()), make_spec())
    assert book.told == []
    assert passes.stats.batches == 1
