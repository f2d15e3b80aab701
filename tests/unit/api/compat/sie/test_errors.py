from __future__ import annotations

import msgpack
import orjson
import pytest
from starlette.requests import Request

from api.compat.dialect import Failure
from api.compat.sie.errors import item_error, render
from api.errors import status_of


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
    ],
)
def test_each_error_has_the_status_and_code_that_the_peers_client_knows(code: str, status: int, theirs: str) -> None:
    reply = render(request("application/json"), Failure(code, "Mend it.", "items", False, status_of(code)))
    assert (reply.status_code, reply.headers["x-sie-error-code"]) == (status, theirs)
    detail = orjson.loads(reply.body)["detail"]
    assert (detail["code"], detail["message"], detail["param"]) == (theirs, "Mend it.", "items")


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
