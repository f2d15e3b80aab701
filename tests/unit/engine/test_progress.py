from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DeadlinePassed, NotFinite
from engine.progress import Progress
from engine.types import Output, Work

MakeWork = Callable[..., Work]


def test_outcomes_are_in_the_order_of_the_items(make_work: MakeWork) -> None:
    work = make_work("a", "b", "c", arrived=1.0)
    progress = Progress(work, loading=0.0)
    outcomes = {index: Output({"n": index}) for index in (2, 0, 1)}
    for index, outcome in outcomes.items():
        progress.put(index, outcome)
    done = progress.finished(4.0, loading=0.0)
    assert done.outcomes == (outcomes[0], outcomes[1], outcomes[2])
    assert progress.left == 0


def test_a_work_given_up_has_the_error_for_every_item(make_work: MakeWork) -> None:
    progress = Progress(make_work("a", "b"), loading=0.0)
    progress.put(0, Output({}))
    error = DeadlinePassed()
    assert progress.failed(error, 4.0, loading=0.0).outcomes == (error, error)


def test_an_item_error_is_an_outcome(make_work: MakeWork) -> None:
    progress = Progress(make_work("a"), loading=0.0)
    error = NotFinite()
    progress.put(0, error)
    assert progress.finished(1.0, loading=0.0).outcomes == (error,)


def test_loading_counts_from_the_arrival_on(make_work: MakeWork) -> None:
    progress = Progress(make_work(arrived=10.0), loading=3.0)
    progress.ran(15.0, 16.0, 1.0)
    progress.put(0, Output({}))
    spent = progress.finished(17.0, loading=5.0).spent
    assert (spent.load, spent.device, spent.wait) == (2.0, 1.0, 4.0)


def test_batches_side_by_side_are_device_time_once(make_work: MakeWork) -> None:
    progress = Progress(make_work("a", "b", arrived=0.0), loading=0.0)
    progress.ran(0.0, 10.0, 0.5)
    progress.ran(3.0, 9.0, 0.25)
    progress.ran(2.0, 4.0, 0.25)
    done = progress.failed(NotFinite(), 12.0, loading=0.0)
    assert done.spent.device == 10.0
    assert done.device_ms == pytest.approx(7000.0)


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 10)), max_size=6), st.floats(0, 100), st.floats(0, 200))
def test_the_parts_add_up_to_the_stay(
    make_work: MakeWork, batches: list[tuple[float, float]], loading: float, end: float
) -> None:
    progress = Progress(make_work(arrived=0.0), loading=0.0)
    for began, length in batches:
        progress.ran(began, began + length, 1.0)
    spent = progress.failed(NotFinite(), end, loading).spent
    assert min(spent.load, spent.wait, spent.device) >= -1e-9
    assert spent.load + spent.wait + spent.device == pytest.approx(end)
