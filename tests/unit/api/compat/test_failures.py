"""Errors of a native request, told in the words of the body that it was made of."""

from __future__ import annotations

import pytest

from api.compat.failures import JobFailed, StillRunning, check_rows, first_fault, renamed
from catalog.errors import InvalidOption
from tasks.errors import InvalidRequest
from tests.unit.api.compat.ends import ended

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


@pytest.mark.parametrize(
    ("param", "theirs", "said", "told"),
    [
        ("max_tokens", "max_new_tokens", "Option 'max_tokens': too large.", "Option 'max_new_tokens': too large."),
        ("max_tokens", "options.max_new_tokens", "'max_tokens' is it.", "'options.max_new_tokens' is it."),
        ("stop", "options.stop", "Unknown option 'stop' for it.", "Unknown option 'stop' for it."),
    ],
)
def test_an_option_of_another_name_is_told_by_that_in_the_message_too(
    param: str, theirs: str, said: str, told: str
) -> None:
    names = {f"options.{param}": theirs, "options": "options"}
    error = renamed(InvalidOption(said, param=f"options.{param}"), names)
    assert (error.message, error.param) == (told, theirs)


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


def test_an_item_that_failed_is_named_by_its_place_unless_its_error_names_a_field() -> None:
    def rows(**fields: str) -> list[dict[str, object]]:
        return [{"score": 1.0}, {"error": {"code": "c", "message": "m", **fields}}]

    assert first_fault([{"score": 1.0}]) is None
    for fields, param in (
        ({}, "items[1]"),
        ({"param": "text"}, "items[1]"),
        ({"param": "options.task"}, "options.task"),
    ):
        assert first_fault(rows(**fields)) == {"code": "c", "message": "m", "param": param}


def test_a_reply_without_room_for_an_error_fails_whole() -> None:
    end = ended("encode", [{}, {"error": {"code": "empty_text", "message": "Send 'items[1]'.", "param": "items[1]"}}])
    with pytest.raises(JobFailed) as raised:
        check_rows(end, {"items": "input"})
    assert (raised.value.param, raised.value.job_id) == ("input[1]", str(end.job.id))
    check_rows(ended("encode", [{}, {}]), {})
