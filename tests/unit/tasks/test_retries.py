"""Back-off between tries."""

from __future__ import annotations

import pytest

from tasks.retries import LONGEST_DELAY_S, delay_s, tries_again


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (7, LONGEST_DELAY_S), (10_000, LONGEST_DELAY_S)]
)
def test_the_delay_doubles_up_to_a_minute(attempt: int, seconds: float) -> None:
    assert delay_s(attempt) == seconds


def test_only_a_retryable_failure_with_attempts_left_is_tried_again() -> None:
    assert tries_again(retryable=True, attempt=2, max_attempts=3)
    assert not tries_again(retryable=True, attempt=3, max_attempts=3)
    assert not tries_again(retryable=False, attempt=1, max_attempts=3)
