"""Errors as the clients of Cohere, of Jina and of the peer read them."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request

from api.compat.cohere.errors import CohereErrorReply, render
from api.compat.dialect import UNEXPECTED, Failure
from api.compat.failures import JobFailed, StillRunning
from catalog.errors import UnknownModel
from tasks.errors import InvalidRequest, LimitExceeded, Overloaded

REQUEST = Request({"type": "http", "method": "POST", "path": "/v1/rerank", "headers": []})


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("Wrong.", param="top_n"), 422),
        (UnknownModel("owl", []), 404),
        (LimitExceeded("Much."), 413),
        (Overloaded(), 429),
        (JobFailed("model_failed", "Broken.", job_id="j"), 500),
        (StillRunning("j"), 504),
    ],
)
def test_every_client_finds_the_message_where_it_looks(error: InvalidRequest, status: int) -> None:
    failure = Failure.of(error)
    response = render(REQUEST, failure)
    body = json.loads(bytes(response.body))
    CohereErrorReply.model_validate(body)
    assert response.status_code == status
    assert body["message"] == body["detail"] == body["error"]["message"] == failure.message
    assert (body["error"]["code"], body["error"]["param"]) == (failure.code, failure.param)
    assert body.get("id") == body["error"].get("job_id") == failure.job_id


def test_what_nobody_raised_tells_nothing_of_the_inside() -> None:
    response = render(REQUEST, UNEXPECTED)
    assert (response.status_code, json.loads(bytes(response.body))["error"]["code"]) == (500, "internal")
