"""The peer's four verbs over HTTP, for callers without its client: JSON, both spellings of a name, headers, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from tests.acceptance.fakes import fake, parser, writer

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

OWL = fake(max_length=8) | {"profiles": {"short": {"run": {"truncate": False}}}}
MODELS = {
    "acme/owl": OWL,
    "acme/ranker": fake() | {"tasks": {"score": {}}},
    "acme/broken": fake(faults=[{"kind": "fail_load", "reason": "corrupt"}]),
    "acme/parser": parser(),
    "acme/writer": writer(),
    "acme/faulty": writer(step_seconds=0.01, faults=[{"kind": "error", "at_call": 4, "times": 1000}]),
}
LONG = "one two three four five six seven eight nine ten"


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models=MODELS)


def post(stack: Any, path: str, body: Any, **headers: str) -> Any:
    return stack.client.post(path, json=body, headers=headers)


def texts(*given: str) -> dict[str, Any]:
    return {"items": [{"text": text} for text in given]}


@pytest.mark.parametrize("path", ["acme/owl", "acme%2Fowl", "acme__owl", "owl", "acme/owl:default"])
def test_a_model_is_named_in_every_spelling(stack: Any, path: str) -> None:
    reply = post(stack, f"/v1/encode/{path}", texts("a"))
    assert (reply.status_code, reply.json()["model"]) == (200, "acme/owl")


def test_vectors_are_those_of_the_native_api(stack: Any) -> None:
    job = {"verb": "encode", "model": "acme/owl", "items": ["a", "b"]}
    want = post(stack, "/v1/jobs", job, prefer="wait=30").json()["result"]["items"]
    found = post(stack, "/v1/encode/acme/owl", texts("a", "b")).json()
    assert found["items"] == want
    assert found["usage"] == {"input_tokens": 6}


def test_a_reply_tells_its_job_and_its_times(stack: Any) -> None:
    reply = post(stack, "/v1/encode/acme/owl", texts("a"))
    headers = reply.headers
    assert headers["x-sie-server-version"].startswith("0.10.")
    assert headers["x-roost-version"]
    assert headers["x-sie-request-id"] == headers["x-roost-job-id"]
    assert headers["x-sie-units-input-tokens"] == "3"
    assert float(headers["x-total-time"]) >= float(headers["x-inference-time"]) >= 0
    assert reply.json()["timing"]["total_ms"] == pytest.approx(float(headers["x-total-time"]), abs=0.01)
    job = stack.client.get(f"/v1/jobs/{headers['x-sie-request-id']}").json()
    assert (job["status"], job["worker"]) == ("succeeded", headers["x-sie-worker"])


@pytest.mark.parametrize("remote", ["forbid", "allow"])
def test_everything_is_served_here_whatever_is_allowed_elsewhere(stack: Any, remote: str) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for path, body in (
        ("encode/acme/owl", texts("a")),
        ("score/acme/ranker", {"query": {"text": "q"}, **texts("a")}),
        ("extract/acme/parser", texts("a")),
        ("generate/acme/writer", {"prompt": "a", "max_new_tokens": 1}),
        ("generate/acme/writer", {"prompt": "a", "max_new_tokens": 1, "stream": True}),
    ):
        reply = post(stack, f"/v1/{path}", body, **{"x-sie-remote": remote, "traceparent": trace})
        assert (reply.status_code, reply.headers["x-sie-served-by"]) == (200, "local")


def test_bodies_and_replies_have_their_own_forms(stack: Any) -> None:
    mixed = stack.client.post(
        "/v1/encode/acme/owl",
        content=msgpack.packb(texts("a")),
        headers={"content-type": "application/msgpack", "accept": "application/json"},
    )
    packed = post(stack, "/v1/encode/acme/owl", texts("a"), accept="application/msgpack")
    values = msgpack.unpackb(packed.content)["items"][0]["dense"]["values"]
    assert (values[b"nd"], values[b"type"], values[b"shape"], len(values[b"data"])) == (True, "<f4", [8], 32)
    assert len(mixed.json()["items"][0]["dense"]["values"]) == 8
    assert post(stack, "/v1/encode/acme/owl", texts("a"), accept="text/html").status_code == 406


def test_a_caller_without_the_client_gets_each_item_in_its_place(stack: Any) -> None:
    items = post(stack, "/v1/encode/acme/owl", texts("a", " ", "b")).json()["items"]
    assert ["dense" in item for item in items] == [True, False, True]
    assert items[1]["error"]["code"] == "INVALID_INPUT"


def test_a_profile_of_the_options_is_that_of_the_model(stack: Any) -> None:
    assert post(stack, "/v1/encode/acme/owl", texts(LONG)).json()["items"][0]["truncated"]
    body = texts(LONG) | {"params": {"options": {"profile": "short"}}}
    reply = post(stack, "/v1/encode/acme/owl", body)
    assert (reply.status_code, reply.json()["detail"]["code"]) == (400, "INPUT_TOO_LONG")
    body = texts(LONG) | {"params": {"options": {"overflow_policy": "error"}}}
    assert post(stack, "/v1/encode/acme/owl", body).json()["detail"]["code"] == "INPUT_TOO_LONG"


def test_a_failed_item_is_not_ranked_and_its_neighbours_are(stack: Any) -> None:
    body = {"query": {"text": "q"}, **texts("a", " ", "b")}
    found = post(stack, "/v1/score/acme/ranker", body).json()
    assert {one["item_id"] for one in found["scores"]} == {"item-0", "item-2"}
    assert [one["id"] for one in found["errors"]] == ["item-1"]


def test_a_generation_has_text_and_data(stack: Any) -> None:
    reply = post(stack, "/v1/generate/acme__writer", {"prompt": "Once upon", "max_new_tokens": 3})
    found = reply.json()
    assert found["data"] == found["text"]
    assert (found["finish_reason"], found["usage"]["completion_tokens"]) == ("length", 3)
    assert reply.headers["x-sie-units-output-tokens"] == "3"


def test_a_stream_that_breaks_off_ends_with_its_error(stack: Any) -> None:
    body = {"prompt": "Once upon", "max_new_tokens": 12, "stream": True}
    lines = post(stack, "/v1/generate/acme/faulty", body).text.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    assert '"finish_reason":"error"' in lines[-2]
    assert '"code":"' in lines[-2]


def test_a_stream_is_refused_with_a_status_before_it_begins(stack: Any) -> None:
    reply = post(stack, "/v1/generate/acme/writer", {"prompt": " ", "max_new_tokens": 3, "stream": True})
    assert (reply.status_code, reply.json()["detail"]["param"]) == (400, "prompt")


def test_a_load_that_failed_is_told_with_its_class_and_no_time_to_come_back(stack: Any) -> None:
    reply = post(stack, "/v1/encode/acme/broken", texts("a"))
    detail = reply.json()["detail"]
    assert (reply.status_code, detail["code"]) == (502, "MODEL_LOAD_FAILED")
    assert (detail["error_class"], detail["permanent"], detail["param"]) == ("UNKNOWN", True, "model")
    assert detail["attempts"] >= 1
    assert "retry-after" not in reply.headers


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        ("encode/acme/owll", texts("a"), 404, "MODEL_NOT_FOUND", "model"),
        ("encode/acme/owl:long", texts("a"), 404, "MODEL_NOT_FOUND", "model"),
        ("encode/acme/owl", [], 400, "INVALID_INPUT", "body"),
        ("encode/acme/owl", {"items": []}, 400, "INVALID_INPUT", "items"),
        ("encode/acme/owl", {"items": [{}]}, 400, "INVALID_INPUT", "items[0].text"),
        ("encode/acme/owl", texts("a") | {"model": "b"}, 400, "INVALID_INPUT", "model"),
        ("encode/acme/owl", texts("a") | {"params": {"output_types": ["sparse"]}}, 400, "INVALID_INPUT",
         "params.output_types"),
        ("encode/acme/owl", texts("a") | {"params": {"output_dtype": "int4"}}, 400, "INVALID_INPUT",
         "params.output_dtype"),
        ("encode/acme/writer", texts("a"), 400, "INVALID_INPUT", "model"),
        ("score/acme/ranker", texts("a"), 400, "INVALID_INPUT", "query"),
        ("score/acme/ranker", {"query": {"text": " "}, **texts("a")}, 400, "INVALID_INPUT", "query"),
        ("score/acme/ranker", {"query": {"text": "q"}, **texts("a"), "options": {"score_mode": "x"}}, 400,
         "INVALID_INPUT", "options.score_mode"),
        ("extract/acme/parser", texts("a") | {"params": {"options": {"ocrr": True}}}, 400, "INVALID_INPUT",
         "params.options.ocrr"),
        ("extract/acme/parser", texts("a\f" * 99), 400, "INPUT_TOO_LONG", None),
        ("generate/acme/writer", {"prompt": "a"}, 400, "INVALID_INPUT", "max_new_tokens"),
        ("generate/acme/writer", {"prompt": "a", "max_new_tokens": 0}, 400, "INVALID_INPUT", "max_new_tokens"),
        ("generate/acme/writer", {"prompt": "a", "max_new_tokens": 3, "n": 2}, 400, "unsupported_field", "n"),
        ("generate/acme/writer", {"prompt": "a", "max_new_tokens": 3, "top_p": 7}, 400, "INVALID_INPUT", "top_p"),
    ],
)  # fmt: skip
def test_an_error_has_the_peers_status_code_and_the_callers_field(
    stack: Any, path: str, body: Any, status: int, code: str, param: str | None
) -> None:
    for accept in ("application/json", "application/msgpack"):
        reply = post(stack, f"/v1/{path}", body, accept=accept)
        assert reply.headers["content-type"] == accept
        detail = (reply.json() if accept.endswith("json") else msgpack.unpackb(reply.content))["detail"]
        assert (reply.status_code, reply.headers["x-sie-error-code"], detail["code"]) == (status, code, code)
        assert detail["message"]
        if param is not None:
            assert detail["param"] == param


def test_plain_text_is_refused(stack: Any) -> None:
    reply = stack.client.post("/v1/encode/acme/owl", content="{}", headers={"content-type": "text/plain"})
    assert (reply.status_code, reply.json()["detail"]["param"]) == (415, "Content-Type")


def test_a_body_that_is_too_large_is_refused_in_the_form_of_accept(stack: Any) -> None:
    prompt = "a" * (4 * 2**20 + 1)
    reply = post(stack, "/v1/generate/acme/writer", {"prompt": prompt, "max_new_tokens": 3}, accept="application/json")
    assert (reply.status_code, reply.json()["detail"]["code"]) == (413, "INPUT_TOO_LONG")
    whole = b"\0" * (stack.settings.max_body_bytes + 1)
    forms = {"content-type": "application/msgpack", "accept": "application/msgpack"}
    reply = stack.client.post("/v1/encode/acme/owl", content=whole, headers=forms)
    assert (reply.status_code, msgpack.unpackb(reply.content)["detail"]["code"]) == (413, "INPUT_TOO_LONG")
