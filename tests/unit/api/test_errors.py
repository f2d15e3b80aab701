from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules

import httpx
import pytest
from fastapi import FastAPI

import tasks
from api import errors
from api.errors import STATUS, envelope, error_response, status_of
from catalog.errors import CatalogError, RoostError, UnknownModel
from engine.errors import EngineError
from tasks.errors import InvalidRequest, Overloaded, StoreUnavailable, TaskError


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    errors.install(app)

    @app.get("/raise/{name}")
    async def fail(name: str) -> None:
        raise {
            "unknown": RuntimeError("secret text"),
            "model": UnknownModel("org/modle", ["org/model"]),
            "full": Overloaded(),
            "away": StoreUnavailable(),
            "param": InvalidRequest("bad", param="items[3].text"),
        }[name]

    @app.get("/typed")
    async def typed(limit: int, colour: Colour = Colour.RED) -> None: ...

    @app.post("/typed")
    async def typed_in() -> None: ...

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def told(client: httpx.AsyncClient, path: str, status: int, method: str = "GET") -> dict[str, object]:
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    body: dict[str, object] = response.json()["error"]
    assert set(body) >= {"code", "message", "param", "retryable"}
    return body


async def test_an_error_of_ours_has_its_code_message_and_status(client: httpx.AsyncClient) -> None:
    error = await told(client, "/raise/model", 404)
    assert (error["code"], error["param"], error["retryable"]) == ("model_not_found", "model", False)
    assert "Did you mean 'org/model'?" in str(error["message"])


async def test_the_field_at_fault_is_named(client: httpx.AsyncClient) -> None:
    assert (await told(client, "/raise/param", 422))["param"] == "items[3].text"


@pytest.mark.parametrize(("path", "status"), [("/raise/full", 429), ("/raise/away", 503)])
async def test_a_passing_trouble_says_when_to_come_back(client: httpx.AsyncClient, path: str, status: int) -> None:
    response = await client.get(path)
    assert response.status_code == status
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["retryable"] is True


async def test_an_unexpected_error_tells_nothing_but_is_logged_whole(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        error = await told(client, "/raise/unknown", 500)
    assert error["code"] == "internal"
    assert "secret" not in str(error)
    assert "secret text" in caplog.text


async def test_an_unknown_path_has_the_envelope(client: httpx.AsyncClient) -> None:
    error = await told(client, "/nowhere", 404)
    assert (error["code"], error["type"]) == ("route_not_found", "invalid_request_error")


async def test_a_wrong_method_has_the_envelope_and_names_all_right_ones(client: httpx.AsyncClient) -> None:
    error = await told(client, "/typed", 405, "DELETE")
    assert error["code"] == "method_not_allowed"
    assert "GET, POST" in str(error["message"])
    assert (await client.delete("/typed")).headers["allow"] == "GET, POST"


@pytest.mark.parametrize(("query", "param"), [("", "limit"), ("?limit=x", "limit"), ("?limit=1&colour=ret", "colour")])
async def test_a_wrong_parameter_has_the_envelope(client: httpx.AsyncClient, query: str, param: str) -> None:
    error = await told(client, "/typed" + query, 422)
    assert (error["code"], error["param"]) == ("invalid_request", param)


async def test_a_near_miss_in_a_parameter_gets_the_right_name(client: httpx.AsyncClient) -> None:
    assert "did you mean 'red'?" in str((await told(client, "/typed?limit=1&colour=ret", 422))["message"])


def test_an_envelope_names_its_job_only_if_there_is_one() -> None:
    error = {"code": "c", "message": "m"}
    assert envelope(error)["error"] == {"code": "c", "message": "m", "param": None, "retryable": False}
    assert envelope(error, job_id="j")["error"]["job_id"] == "j"


def test_a_code_that_is_not_in_the_table_is_a_failure_inside() -> None:
    assert status_of("model_failed") == 500


def _all(kind: type[RoostError]) -> Iterator[type[RoostError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _all(child)


_INSIDE = {
    "task_error", "catalog_error", "engine_error", "internal", "invalid_spec", "worker_lost", "out_of_memory",
    "not_finite", "wrong_result_count", "model_failed", "device_lost", "result_refused",
}  # fmt: skip
"""Codes that mean a failure inside the service, whoever sent the request: 500."""


def test_every_error_that_a_caller_can_mend_is_in_the_table() -> None:
    for module in iter_modules(tasks.__path__, "tasks."):
        if not module.ispkg:
            import_module(module.name)
    reached = {kind.code for base in (CatalogError, TaskError) for kind in _all(base)}
    assert {code for code in reached if code not in STATUS} <= _INSIDE


def test_every_busy_status_has_a_retry_after() -> None:
    for status in {status for status in STATUS.values() if status in {429, 503}}:
        assert "retry-after" in errors.headers_of(status)


def test_a_failure_inside_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert error_response(EngineError("it broke")).status_code == 500
    assert "it broke" in caplog.text
