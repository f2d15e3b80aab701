from __future__ import annotations

import pytest

from roost import errors
from roost.wire import Reply, checked, failure
from tests.unit.roost.scripted import error, packed, reply


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.NotAllowed),
        (403, errors.NotAllowed),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (410, errors.NotFound),
        (413, errors.TooLarge),
        (415, errors.RequestRefused),
        (422, errors.RequestRefused),
        (429, errors.Overloaded),
        (500, errors.ServerFailed),
        (503, errors.ServerFailed),
    ],
)
def test_each_status_has_its_error_with_all_that_the_body_tells(status: int, kind: type[errors.RoostError]) -> None:
    found = failure(error(status, "a_code", param="items[0]", retryable=True, job_id="j1"))
    assert type(found) is kind
    assert (found.code, found.param, found.retryable, found.status) == ("a_code", "items[0]", True, status)
    assert (found.job_id, str(found)) == ("j1", "Do something else.")


@pytest.mark.parametrize("body", ["<html>", [], {"error": "text"}, {"error": {"message": "no code"}}])
def test_an_error_of_somebody_else_is_told_as_that(body: object) -> None:
    assert isinstance(failure(reply(body, 500)), errors.UnexpectedReply)


def test_either_form_is_read_by_what_it_says_it_is() -> None:
    assert checked(reply({"a": 1})) == checked(packed({"a": 1})) == {"a": 1}


@pytest.mark.parametrize("bad", [b"<html>", b"[1]", b'"text"'])
def test_an_answer_that_is_no_object_is_another_server(bad: bytes) -> None:
    with pytest.raises(errors.UnexpectedReply, match="Roost server"):
        checked(Reply(200, {}, bad, 0.0))
