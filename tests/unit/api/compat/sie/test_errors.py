from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgpack
import orjson
import pytest
from starlette.requests import Request

import engine.documents.errors
import engine.images
import tasks.errors
from api.compat.dialect import Failure
from api.compat.sie.errors import code_of, item_error, render
from api.compat.sie.generate_stream import failed_event
from api.errors import STATUS, status_of
from catalog.errors import RoostError


def request(accept: str) -> Request:
    return Request({"type": "http", "headers": [(b"accept", accept.encode())]})


@pytest.mark.parametrize(
    ("code", "status", "theirs"),
    [
        ("invalid_request", 400, "INVALID_INPUT"),
        ("invalid_option", 400, "INVALID_INPUT"),
        ("unsupported_field", 400, "unsupported_field"),
        ("text_too_long", 400, "INPUT_TOO_LONG"),
        ("limit_exceeded", 413, "INPUT_TOO_LONG"),
        ("model_not_found", 404, "MODEL_NOT_FOUND"),
        ("model_load_failed", 502, "MODEL_LOAD_FAILED"),
        ("weights_unavailable", 502, "MODEL_LOAD_FAILED"),
        ("model_too_large", 502, "MODEL_LOAD_FAILED"),
        ("all_items_failed", 500, "INFERENCE_ERROR"),
        ("time_limit", 500, "INFERENCE_ERROR"),
        ("overloaded", 503, "QUEUE_FULL"),
        ("store_unavailable", 503, "QUEUE_UNAVAILABLE"),
        ("not_ready", 503, "PROVISIONING"),
        ("still_running", 504, "GATEWAY_TIMEOUT"),
        ("internal", 500, "INFERENCE_ERROR"),
        ("model_failed", 500, "INFERENCE_ERROR"),
        ("not_finite", 500, "INFERENCE_ERROR"),
        ("worker_lost", 500, "INFERENCE_ERROR"),
        ("out_of_memory", 503, "RESOURCE_EXHAUSTED"),
        ("password_needed", 400, "INVALID_INPUT"),
        ("damaged", 400, "INVALID_INPUT"),
        ("converter_died", 500, "INFERENCE_ERROR"),
    ],
)
def test_each_error_has_the_status_and_code_that_the_peers_client_knows(code: str, status: int, theirs: str) -> None:
    reply = render(request("application/json"), Failure(code, "Mend it.", "items", False, status_of(code)))
    assert (reply.status_code, reply.headers["x-sie-error-code"]) == (status, theirs)
    detail = orjson.loads(reply.body)["detail"]
    assert (detail["code"], detail["message"], detail["param"]) == (theirs, "Mend it.", "items")


_KNOWN: Mapping[int, set[str]] = {
    400: {"INVALID_INPUT", "INPUT_TOO_LONG", "unsupported_field"},
    500: {"INFERENCE_ERROR"},
    502: {"MODEL_LOAD_FAILED"},
    503: {"QUEUE_FULL", "QUEUE_UNAVAILABLE", "PROVISIONING", "RESOURCE_EXHAUSTED"},
    504: {"GATEWAY_TIMEOUT", "DEADLINE_PASSED"},
}
"""What may be said of what the peer's client has a rule for."""


def _codes(kind: type[RoostError]) -> Iterator[str]:
    for child in kind.__subclasses__():
        yield child.code
        yield from _codes(child)


def test_every_code_there_is_has_a_status_and_a_code_that_the_peers_client_has_a_rule_for() -> None:
    codes = {*STATUS, *_codes(RoostError)}
    stored = {engine.documents.errors.Damaged, engine.images.ImageDamaged, tasks.errors.WorkerLost}
    assert codes > {kind.code for kind in stored}
    for code in codes:
        reply = render(request(""), Failure(code, "m", None, False, status_of(code)))
        theirs = reply.headers["x-sie-error-code"]
        assert theirs in _KNOWN.get(reply.status_code, {theirs}), code
        event = failed_event("j")(Failure(code, "m", None, False, status_of(code)))
        in_stream = orjson.loads(event.split(b"\n\n")[0].removeprefix(b"data: "))["error"]["code"]
        in_item = item_error({"code": code, "message": "m"})["code"]
        assert {in_stream, in_item, code_of(code)} == {theirs}, code


def test_who_found_no_memory_comes_back_in_five_seconds() -> None:
    assert render(request(""), Failure("out_of_memory", "m", None, False, 500)).headers["retry-after"] == "5"


def test_a_full_queue_is_asked_again_soon_and_a_failed_load_is_not() -> None:
    full = render(request(""), Failure("overloaded", "m", None, True, 429))
    assert full.headers["retry-after"] == "1"
    failed = render(request(""), Failure("model_load_failed", "m", None, False, 502))
    assert "retry-after" not in failed.headers


def test_an_error_comes_in_msgpack_to_whom_takes_that() -> None:
    more = {"error_class": "OOM", "attempts": 2, "permanent": False}
    reply = render(request("application/msgpack"), Failure("model_load_failed", "m", None, False, 502), more)
    assert reply.headers["content-type"] == "application/msgpack"
    assert msgpack.unpackb(reply.body)["detail"] == {"code": "MODEL_LOAD_FAILED", "message": "m", "param": None, **more}


def test_the_error_of_an_item_has_code_and_message_alone() -> None:
    stored = {"code": "image_damaged", "message": "Send a whole one.", "retryable": False, "param": "items[0]"}
    assert item_error(stored) == {"code": "INVALID_INPUT", "message": "Send a whole one."}
