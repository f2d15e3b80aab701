"""Whether a job that failed is tried again, and when. Pure."""

from __future__ import annotations

FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 60.0


def delay_s(attempt: int) -> float:
    """Seconds before the next try after `attempt` tries: 1, 2, 4 … up to a minute."""
    return min(LONGEST_DELAY_S, FIRST_DELAY_S * float(2 ** min(max(attempt - 1, 0), 16)))


def tries_again(*, retryable: bool, attempt: int, max_attempts: int) -> bool:
    """Whether another try may help and is still allowed."""
    return retryable and attempt < max_attempts
