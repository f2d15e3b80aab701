"""Errors as TEI has them."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request

from api.compat.dialect import UNEXPECTED, Failure
from api.compat.failures import JobFailed, StillRunning
from api.compat.tei.errors import TeiErrorReply, render
from catalog.errors import RoostError, UnknownModel, UnsupportedVerb
from tasks.errors import EmptyText, InvalidRequest, LimitExceeded, Overloaded, StoreUnavailable, TextTooLong

REQUEST = Request({"type": "http", "method": "POST", "path": "/embed", "headers": []})


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("Wrong.", param="inputs"), 422, "Validation"),
        (UnknownModel("owl", []), 404, "Validation"),
        (LimitExceeded("Much."), 413, "Validation"),
        (TextTooLong("Long."), 413, "Validation"),
        (EmptyText(), 400, "Empty"),
        (UnsupportedVerb("No."), 424, "Backend"),
        (JobFailed("model_failed", "Broken.", job_id="j"), 424, "Backend"),
        (JobFailed("model_load_failed", "Gone."), 424, "Backend"),
        (Overloaded(), 429, "Overloaded"),
        (StoreUnavailable(), 503, "Unhealthy"),
        (StillRunning("j"), 504, "Overloaded"),
    ],
)
def test_an_error_has_the_status_and_the_type_of_tei(error: RoostError, status: int, kind: str) -> None:
    failure = Failure.of(error)
    response = render(REQUEST, failure)
    body = json.loads(bytes(response.body))
    TeiErrorReply.model_validate(body)
    assert (response.status_code, body["error_type"], body["error"]) == (status, kind, failure.message)
    assert (body["code"], body["param"], body.get("job_id")) == (failure.code, failure.param, failure.job_id)


def test_what_nobody_raised_is_ours() -> None:
    response = render(REQUEST, UNEXPECTED)
    assert (response.status_code, json.loads(bytes(response.body))["error_type"]) == (500, "Backend")
