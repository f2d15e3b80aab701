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
    progress.began(15.0)
    progress.ran(15.0, 16.0, 1.0)
    progress.put(0, Output({}))
    spent = progress.finished(17.0, loading=5.0).spent
    assert (spent.load, spent.device, spent.wait) == (2.0, 1.0, 4.0)


def test_batches_side_by_side_are_device_time_once(make_work: MakeWork) -> None:
    progress = Progress(make_work("a", "b", arrived=0.0), loading=0.0)
    for began in (0.0, 2.0, 3.0):
        progress.began(began)
    progress.ran(2.0, 4.0, 0.25)
    progress.ran(3.0, 9.0, 0.25)
    progress.ran(0.0, 10.0, 0.5)
    done = progress.failed(NotFinite(), 12.0, loading=0.0)
    assert done.spent.device == 10.0
    assert done.device_ms == pytest.approx(7000.0)


def test_steps_that_follow_each_other_count_without_the_gaps(make_work: MakeWork) -> None:
    progress = Progress(make_work(arrived=0.0), loading=0.0)
    for step in range(1000):
        progress.began(step + 0.25)
        progress.ran(step + 0.25, step + 0.75, 1.0)
    spent = progress.failed(NotFinite(), 1000.0, loading=0.0).spent
    assert (spent.device, spent.wait) == (500.0, 500.0)


def test_a_work_given_up_while_a_batch_of_it_runs_counts_that_batch_until_then(make_work: MakeWork) -> None:
    progress = Progress(make_work(arrived=0.0), loading=0.0)
    progress.began(4.0)
    spent = progress.failed(DeadlinePassed(), 7.0, loading=0.0).spent
    assert (spent.device, spent.wait) == (3.0, 4.0)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), max_size=6), st.integers(0, 100), st.integers(0, 200)
)
def test_the_parts_add_up_to_the_stay(
    make_work: MakeWork, batches: list[tuple[int, int]], loading: int, end: int
) -> None:
    progress = Progress(make_work(arrived=0.0), loading=0.0)
    moments = [(began, 0, began) for began, _ in batches] + [(began + length, 1, began) for began, length in batches]
    covered = {second for began, length in batches for second in range(began, began + length)}
    for now, ends, began in sorted(moments):
        if ends:
            progress.ran(began, now, 1.0)
        else:
            progress.began(now)
    spent = progress.failed(NotFinite(), end, loading).spent
    assert min(spent.load, spent.wait, spent.device) >= 0
    assert spent.load + spent.wait + spent.device == pytest.approx(end)
    assert spent.device == min(end, len(covered))
