from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tasks.batches import Status, Tally, final_status, line_job, window
from tasks.errors import InvalidRequest
from tasks.prepare import job_id


@pytest.mark.parametrize(
    ("text", "found"),
    [("24h", timedelta(hours=24)), ("90m", timedelta(minutes=90)), ("14d", timedelta(days=14))],
)
def test_a_window_is_a_number_of_minutes_hours_or_days(text: str, found: timedelta) -> None:
    assert window(text) == found


@pytest.mark.parametrize(
    "text", ["", "24", "h", "0h", "-1h", "24H", "15d", "337h", "1.5h", "24h ", "24h\n", "9999999h", "1\u0661h"]
)
def test_other_windows_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        window(text)
    assert refused.value.param == "completion_window"


def test_the_jobs_of_lines_are_told_apart_and_sort_as_the_lines_do() -> None:
    batch, other = job_id(1_700_000_000.0), job_id(1_700_000_000.0)
    numbers = [1, 2, 3, 255, 4096, 2**20 - 1, 2**20, 2**20 + 1, 2**32 - 1]

    ids = [line_job(batch, number) for number in numbers]

    assert ids == sorted(ids)
    assert len({*ids, *(line_job(other, number) for number in numbers)}) == 2 * len(numbers)
    assert ids == [line_job(UUID(int=batch.int), number) for number in numbers]
    assert {(id_.version, id_.variant) for id_ in ids} == {(batch.version, batch.variant)}
    assert {id_.int >> 80 for id_ in ids} == {batch.int >> 80}


@pytest.mark.parametrize(
    ("status", "late", "succeeded", "end"),
    [
        (Status.FINALIZING, False, 3, Status.COMPLETED),
        (Status.FINALIZING, False, 0, Status.FAILED),
        (Status.FINALIZING, True, 3, Status.EXPIRED),
        (Status.FINALIZING, True, 0, Status.EXPIRED),
        (Status.CANCELLING, False, 3, Status.CANCELLED),
        (Status.CANCELLING, True, 0, Status.CANCELLED),
    ],
)
def test_how_a_batch_ends(status: Status, late: bool, succeeded: int, end: Status) -> None:
    assert final_status(status, late=late, succeeded=succeeded) is end


def test_a_tally_counts_lines_and_tokens() -> None:
    total = Tally.of(succeeded=True, usage={"tokens": 3}) + Tally.of(
        succeeded=True, usage={"tokens": 9, "prompt_tokens": 5, "completion_tokens": 4}
    )
    assert total + Tally.of(succeeded=False, usage=None) == Tally(2, 1, 8, 4)
