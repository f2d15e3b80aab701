from __future__ import annotations

from uuid import UUID

import pytest

from api import progress
from api.progress import Progress
from tasks.notices import Change

ONE, OTHER, THIRD = (UUID(int=number) for number in range(1, 4))


def test_a_running_job_has_come_as_far_as_was_heard_last() -> None:
    known = Progress()
    assert known.of(ONE) == 0
    known.heard([Change(ONE, "running", 2), Change(ONE, "running", 2, 3), Change(OTHER, "running", 2, 1)])
    known.heard([Change(ONE, "running", 2, 5)])
    assert (known.of(ONE), known.of(OTHER)) == (5, 1)


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "expired", "queued"])
def test_a_job_that_runs_no_more_is_forgotten(state: str) -> None:
    known = Progress()
    known.heard([Change(ONE, "running", 2, 3), Change(ONE, state, 3)])
    assert known.of(ONE) == 0


def test_the_one_heard_of_longest_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOST", 2)
    known = Progress()
    known.heard([Change(ONE, "running", 2, 1), Change(OTHER, "running", 2, 1), Change(ONE, "running", 2, 2)])
    known.heard([Change(THIRD, "running", 2, 1)])
    assert [known.of(id_) for id_ in (ONE, OTHER, THIRD)] == [2, 0, 1]
