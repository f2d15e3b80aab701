"""What goes into one transaction."""

from __future__ import annotations

from collections.abc import Callable

from tasks.child.endings import MOST_BYTES, MOST_JOBS, Ending, cut
from tasks.messages import Completion, Submission

Make = Callable[..., Submission]


def endings(make: Make, count: int, result: bytes = b"r") -> list[Ending]:
    job = make()
    completion = Completion(job, "succeeded", result, 0, None, 1.0, 0.0, 1.0)
    return [Ending(str(number), completion, 0.1) for number in range(count)]


def keys(some: list[Ending]) -> list[str]:
    return [ending.key for ending in some]


def test_all_that_has_ended_goes_together_up_to_a_number(make_submission: Make) -> None:
    waiting = endings(make_submission, MOST_JOBS + 3)
    batch, left = cut(waiting)
    assert (batch, left) == (waiting[:MOST_JOBS], waiting[MOST_JOBS:])


def test_and_up_to_a_size_but_one_goes_however_large(make_submission: Make) -> None:
    large = endings(make_submission, 3, bytes(MOST_BYTES))
    assert [keys(part) for part in cut(large)] == [["0"], ["1", "2"]]
