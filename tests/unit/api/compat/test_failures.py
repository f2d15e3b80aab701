"""Errors of a native request, told in the words of the body that it was made of."""

from __future__ import annotations

import pytest

from api.compat.failures import JobFailed, StillRunning, renamed
from tasks.errors import InvalidRequest

NAMES = {"items": "input", "items[0]": "prompt", "options.dimensions": "dimensions", "options": ""}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("items[3].text", "input[3].text"),
        ("items", "input"),
        ("items[0]", "prompt"),
        ("options.dimensions", "dimensions"),
        ("options.truncate", "truncate"),
        ("itemsize", "itemsize"),
        ("model", "model"),
    ],
)
def test_a_field_is_named_by_the_longest_beginning_that_fits(ours: str, theirs: str) -> None:
    error = renamed(InvalidRequest(f"{ours!r} must be less.", param=ours), NAMES)
    assert error.param == theirs
    assert error.message == f"{theirs!r} must be less."
    assert str(error) == error.message


def test_an_error_without_a_field_stays_as_it_is() -> None:
    error = InvalidRequest("The body must be a JSON object.")
    assert renamed(error, NAMES) is error
    assert (error.message, error.param) == ("The body must be a JSON object.", None)


def test_a_failed_job_keeps_all_that_was_stored_of_its_error() -> None:
    stored = {"code": "empty_text", "message": "Send some text.", "param": "items[1]", "retryable": True}
    error = JobFailed.of(stored, job_id="7")
    assert (error.code, error.message, error.param, error.retryable, error.job_id) == (*stored.values(), "7")


def test_a_call_that_runs_on_says_where_and_one_that_was_given_up_does_not() -> None:
    kept, dropped = StillRunning("7"), StillRunning()
    assert "/v1/jobs/7/result" in kept.message
    assert kept.job_id == "7"
    assert "given up" in dropped.message
    assert kept.retryable
    assert dropped.retryable
