from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute

from api import compat
from api.app import create_app
from catalog.loader import Catalog
from tasks.request import parse_request
from tasks.settings import Settings


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(database_url="postgresql://x/y", broker_url="roost://x"), Catalog([])).openapi()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, verb, op) for path, verbs in document["paths"].items() for verb, op in verbs.items()]


COMPATIBLE = {route.path_format for router in compat.routers for route in router.routes if isinstance(route, APIRoute)}
"""Paths of other services' dialects, which their own tests know."""


def test_every_route_is_there(document: dict[str, Any]) -> None:
    assert set(document["paths"]) >= COMPATIBLE
    assert {(path, verb) for path, verb, _ in operations(document) if path not in COMPATIBLE} == {
        ("/v1/jobs", "post"),
        ("/v1/jobs", "get"),
        ("/v1/jobs/{id}", "get"),
        ("/v1/jobs/{id}", "delete"),
        ("/v1/jobs/{id}/result", "get"),
        ("/v1/jobs/{id}/events", "get"),
        ("/v1/jobs/{id}/cancel", "post"),
        ("/v1/jobs/{id}/retry", "post"),
        ("/v1/models", "get"),
        ("/v1/models/{id}", "get"),
        ("/v1/residency", "get"),
        ("/v1/usage", "get"),
        ("/v1/backfills", "post"),
        ("/v1/backfills", "get"),
        ("/v1/backfills/{id}", "get"),
        ("/v1/backfills/{id}/pause", "post"),
        ("/v1/backfills/{id}/resume", "post"),
        ("/v1/backfills/{id}/cancel", "post"),
        ("/v1/backfills/{id}/documents", "get"),
        ("/v1/webhooks", "post"),
        ("/v1/webhooks", "get"),
        ("/v1/webhook-secret", "get"),
        ("/v1/webhook-secret/rotate", "post"),
        ("/v1/webhooks/{id}", "get"),
        ("/v1/webhooks/{id}", "patch"),
        ("/v1/webhooks/{id}", "delete"),
        ("/v1/webhooks/{id}/rotate", "post"),
        ("/v1/webhooks/{id}/test", "post"),
        ("/v1/webhooks/{id}/disable", "post"),
        ("/v1/webhooks/{id}/enable", "post"),
        ("/v1/webhooks/{id}/redeliver", "post"),
        ("/v1/dead", "get"),
        ("/v1/dead/redrive", "post"),
        ("/v1/deliveries", "get"),
        ("/v1/deliveries/{id}", "get"),
        ("/v1/deliveries/{id}/redeliver", "post"),
        ("/healthz", "get"),
        ("/livez", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    }


def test_every_operation_says_what_it_is_for(document: dict[str, Any]) -> None:
    for path, verb, operation in operations(document):
        assert operation.get("summary"), (path, verb)
        assert operation.get("description"), (path, verb)
        assert operation.get("tags"), (path, verb)


def test_every_error_has_our_envelope(document: dict[str, Any]) -> None:
    assert "HTTPValidationError" not in document["components"]["schemas"]
    ours = {"FailedResult", "NotReady"}
    for path, verb, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                schema = response["content"]["application/json"]["schema"]
                told = {one["$ref"].rsplit("/", 1)[-1] for one in schema.get("anyOf", [schema])}
                assert all(name in ours or name.endswith("ErrorReply") for name in told), (path, verb, status)


def test_every_busy_status_tells_of_retry_after(document: dict[str, Any]) -> None:
    for path, verb, operation in operations(document):
        for status, response in operation["responses"].items():
            if status in {"429", "503"}:
                assert "Retry-After" in response["headers"], (path, verb, status)


def test_the_hot_routes_are_documented_though_they_read_by_themselves(document: dict[str, Any]) -> None:
    submit = document["paths"]["/v1/jobs"]["post"]
    for media in ("application/json", "application/msgpack"):
        forms = submit["requestBody"]["content"][media]["schema"]["anyOf"]
        assert [form["$ref"].rsplit("/", 1)[-1] for form in forms] == ["JobRequest", "SieJobRequest"]
    assert {(p["in"], p["name"]) for p in submit["parameters"]} == {
        ("header", "prefer"),
        ("header", "idempotency-key"),
        ("header", "accept"),
        ("query", "encoding"),
    }
    assert {"200", "202", "413", "415", "422", "429", "503"} <= set(submit["responses"])
    look = document["paths"]["/v1/jobs/{id}"]["get"]
    assert {(p["in"], p["name"]) for p in look["parameters"]} == {("path", "id"), ("query", "wait")}
    listing = document["paths"]["/v1/jobs"]["get"]
    filters = {"status", "verb", "model", "tag", "lane", "error", "since", "until"}
    assert {p["name"] for p in listing["parameters"]} == {*filters, "limit", "cursor"}


def test_the_filters_of_the_residency_are_documented(document: dict[str, Any]) -> None:
    look = document["paths"]["/v1/residency"]["get"]
    assert {(p["in"], p["name"]) for p in look["parameters"]} == {("query", "model"), ("query", "worker")}
    assert all(parameter["description"] for parameter in look["parameters"])
    assert {"200", "404", "503"} <= set(look["responses"])


def test_a_reply_has_no_field_that_its_schema_does_not_name(document: dict[str, Any]) -> None:
    for name in ("ModelObject", "WorkerObject", "ResidentModel", "DeviceMemory", "JobObject"):
        schema = document["components"]["schemas"][name]
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) == set(schema["properties"])


def test_unknown_fields_are_refused_by_the_schema_too(document: dict[str, Any]) -> None:
    for name in ("JobRequest", "ItemRequest"):
        assert document["components"]["schemas"][name]["additionalProperties"] is False


def test_the_example_of_a_request_is_valid(document: dict[str, Any]) -> None:
    for example in document["components"]["schemas"]["JobRequest"]["examples"]:
        parse_request(example, 10)
