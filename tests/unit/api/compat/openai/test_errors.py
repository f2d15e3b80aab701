"""Errors as OpenAI's clients expect them."""

from __future__ import annotations

import json

import pytest
from starlette.requests import Request

from api.compat.dialect import UNEXPECTED, Failure
from api.compat.failures import JobFailed, StillRunning
from api.compat.openai.errors import OpenAIErrorReply, body_of, render, status_of
from api.errors import STATUS
from catalog.errors import UnknownModel
from tasks.errors import InvalidRequest, LimitExceeded, Overloaded, StoreUnavailable

REQUEST = Request({"type": "http", "method": "POST", "path": "/v1/embeddings", "headers": []})


@pytest.mark.parametrize(
    ("error", "status", "type_", "code"),
    [
        (InvalidRequest("Wrong.", param="input"), 400, "invalid_request_error", "invalid_request"),
        (UnknownModel("owl", []), 404, "invalid_request_error", "model_not_found"),
        (JobFailed("model_not_allowed", "No."), 403, "permission_error", "model_not_allowed"),
        (
            JobFailed("text_too_long", "Long.", param="input[1]"),
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (LimitExceeded("Much."), 413, "invalid_request_error", "limit_exceeded"),
        (Overloaded(), 429, "rate_limit_error", "rate_limit_exceeded"),
        (StoreUnavailable(), 503, "server_error", "store_unavailable"),
        (JobFailed("model_failed", "Broken."), 500, "server_error", "model_failed"),
    ],
)
def test_an_error_has_the_status_type_and_code_that_clients_know(
    error: JobFailed, status: int, type_: str, code: str
) -> None:
    failure = Failure.of(error)
    body = body_of(failure)["error"]
    assert status_of(failure) == status
    assert (body["type"], body["code"]) == (type_, code)
    assert (body["message"], body["param"], body["retryable"]) == (error.message, error.param, error.retryable)


def test_no_status_is_one_that_the_client_has_no_class_for() -> None:
    for code, native in STATUS.items():
        failure = Failure(code, "", None, False, native)
        assert status_of(failure) != 422
        assert (status_of(failure) >= 500) == (body_of(failure)["error"]["type"] == "server_error")


def test_a_job_is_named_only_where_there_is_one() -> None:
    assert body_of(Failure.of(StillRunning("7")))["error"]["job_id"] == "7"
    assert "job_id" not in body_of(UNEXPECTED)["error"]


@pytest.mark.parametrize(("error", "again"), [(StillRunning("7"), "true"), (JobFailed("cancelled", "No."), "false")])
def test_the_reply_says_whether_to_try_again(error: JobFailed | StillRunning, again: str) -> None:
    reply = render(REQUEST, Failure.of(error))
    assert reply.headers["x-should-retry"] == again
    assert reply.headers["content-type"] == "application/json"
    OpenAIErrorReply.model_validate(json.loads(bytes(reply.body)))
