"""What goes into one transaction."""

from __future__ import annotations

from collections.abc import Callable

from catalog.terms import Lane
from tasks.child.committer import MOST_BYTES, MOST_JOBS, SHY_JOBS, Ending, cut
from tasks.messages import Completion, Submission

Make = Callable[..., Submission]


def endings(make: Make, count: int, lane: Lane, name: str, result: bytes = b"r") -> list[Ending]:
    job = make(lane=lane)
    completion = Completion(job, "succeeded", result, 0, None, 1.0, 0.0, 1.0)
    return [Ending(f"{name}{number}", completion, 0.1) for number in range(count)]


def keys(some: list[Ending]) -> list[str]:
    return [ending.key for ending in some]


def test_all_that_has_ended_goes_together_up_to_a_number(make_submission: Make) -> None:
    waiting = endings(make_submission, MOST_JOBS + 3, Lane.BULK, "b")
    batch, left = cut(waiting)
    assert (batch, left) == (waiting[:MOST_JOBS], waiting[MOST_JOBS:])


def test_and_up_to_a_size_but_one_goes_however_large(make_submission: Make) -> None:
    large = endings(make_submission, 3, Lane.BULK, "b", bytes(MOST_BYTES))
    assert [keys(part) for part in cut(large)] == [["b0"], ["b1", "b2"]]


def test_what_callers_wait_for_goes_first_with_few_others(make_submission: Make) -> None:
    bulk = endings(make_submission, SHY_JOBS + 2, Lane.BULK, "b")
    waiting = [*bulk, *endings(make_submission, 2, Lane.INTERACTIVE, "i")]
    batch, left = cut(waiting)
    assert keys(batch) == ["i0", "i1", *keys(bulk[:SHY_JOBS])]
    assert left == bulk[SHY_JOBS:]


def test_bulk_results_are_written_beside_any_number_of_others(make_submission: Make) -> None:
    bulk = endings(make_submission, SHY_JOBS + 1, Lane.BULK, "b")
    waiting = [*bulk, *endings(make_submission, MOST_JOBS + 1, Lane.INTERACTIVE, "i")]
    batch, left = cut(waiting)
    assert keys(batch)[-SHY_JOBS:] == keys(bulk[:SHY_JOBS])
    assert keys(left) == [f"i{MOST_JOBS}", f"b{SHY_JOBS}"]
