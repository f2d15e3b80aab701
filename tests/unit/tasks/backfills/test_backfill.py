from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tasks.backfills.backfill import Backfill, Status, Tally, final_status, step_job

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
BACKFILL = Backfill(
    id=UUID("0199c0de-0000-7000-8000-000000000000"),
    caller="default",
    status=Status.IN_PROGRESS,
    name="one",
    plan={},
    recipe=b"",
    folder="backfills/x",
    created_at=BEGAN,
    in_progress_at=BEGAN,
    paused_at=None,
    finalizing_at=None,
    cancelling_at=None,
    ended_at=None,
    progress_at=BEGAN + timedelta(seconds=10),
    round=0,
    counted_from=0,
    total=100,
    completed=15,
    failed=5,
    skipped=20,
    rows=0,
    error=None,
    output_file=None,
    report_file=None,
)


def test_speed_and_time_left_follow_from_what_was_done() -> None:
    assert BACKFILL.per_second == 2.0
    assert BACKFILL.seconds_left == 30.0


def test_what_was_done_before_a_pause_does_not_count_for_the_speed() -> None:
    assert replace(BACKFILL, counted_from=10).per_second == 1.0


@pytest.mark.parametrize("changes", [{"progress_at": None}, {"in_progress_at": None}, {"counted_from": 20}])
def test_before_anything_is_done_nothing_is_foretold(changes: dict[str, Any]) -> None:
    found = replace(BACKFILL, **changes)

    assert (found.per_second, found.seconds_left) == (None, None)


def test_a_paused_one_has_no_time_left() -> None:
    assert replace(BACKFILL, status=Status.PAUSED).seconds_left is None


@pytest.mark.parametrize(
    ("status", "tally", "end"),
    [
        (Status.FINALIZING, Tally(completed=1, failed=9), Status.COMPLETED),
        (Status.FINALIZING, Tally(failed=9, skipped=1), Status.COMPLETED),
        (Status.FINALIZING, Tally(failed=9), Status.FAILED),
        (Status.CANCELLING, Tally(completed=9), Status.CANCELLED),
    ],
)
def test_how_one_ends_that_has_nothing_left_to_do(status: Status, tally: Tally, end: Status) -> None:
    assert final_status(status, tally) is end


def test_the_job_of_a_step_is_always_the_same_within_a_round_and_another_in_the_next() -> None:
    ids = [
        step_job(one, *place)
        for one in (BACKFILL, replace(BACKFILL, round=1))
        for place in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1))
    ]

    assert len(set(ids)) == 8
    assert ids[0] == step_job(BACKFILL, 1, 0, 0)
    assert {one.version for one in ids} == {7}
    assert {one.int >> 80 for one in ids} == {BACKFILL.id.int >> 80}
