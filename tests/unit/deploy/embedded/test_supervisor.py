from __future__ import annotations

from deploy.embedded.supervisor import FIRST_DELAY_S, LONGEST_DELAY_S, STEADY_S, ending, next_delay


def test_restarts_wait_longer_each_time_up_to_a_bound() -> None:
    delays = [0.0]
    for _ in range(10):
        delays.append(next_delay(delays[-1], ran_s=1.0))

    assert delays[1:4] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert delays[-1] == LONGEST_DELAY_S


def test_a_steady_run_makes_the_next_restart_quick_again() -> None:
    assert next_delay(LONGEST_DELAY_S, ran_s=STEADY_S) == FIRST_DELAY_S


def test_endings_are_told_in_words() -> None:
    assert [ending(code) for code in (0, 3, -9, -64, None)] == [
        "status 0",
        "status 3",
        "SIGKILL",
        "SIGRTMAX",
        "still running",
    ]
