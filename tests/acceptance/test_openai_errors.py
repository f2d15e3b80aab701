"""What goes wrong, as OpenAI's official client has it: its classes, its envelope, and when it tries again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.acceptance.fakes import fake, writer
from tests.acceptance.openai_clients import Both, sync_client

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

BROKEN = fake(faults=[{"kind": "error", "when_text": "BROKEN"}])


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models={"org/broken": BROKEN, "writer": writer()}, max_body_bytes=200_000)


@pytest.fixture(scope="module")
def clients(stack: Any) -> Iterator[Both]:
    both = Both(stack.url)
    yield both
    both.close()


def test_an_unknown_model_is_not_found_and_the_nearest_is_named(clients: Both) -> None:
    for error in clients.refused(lambda c: c.embeddings.create(model="org/brokne", input="a"), openai.NotFoundError):
        assert (error.code, error.type, error.param) == ("model_not_found", "invalid_request_error", "model")
        assert "Did you mean 'org/broken'?" in error.message


def test_a_body_beyond_the_limit_is_refused_with_the_limit(clients: Both) -> None:
    big = ["x" * 1000] * 300
    for error in clients.refused(lambda c: c.embeddings.create(model="roost/fake", input=big), openai.APIStatusError):
        assert (error.status_code, error.code) == (413, "limit_exceeded")
        assert "200000 bytes" in error.message


def test_too_many_inputs_are_refused_with_the_limit(clients: Both, stack: Any) -> None:
    many = ["x"] * (stack.settings.max_items + 1)
    for error in clients.refused(lambda c: c.embeddings.create(model="roost/fake", input=many), openai.APIStatusError):
        assert (error.status_code, error.param) == (413, "input")
        assert str(stack.settings.max_items) in error.message


def test_a_failure_of_the_model_names_its_job_and_is_not_tried_again(clients: Both, stack: Any) -> None:
    answers: list[int] = []
    http = openai.DefaultHttpxClient(event_hooks={"response": [lambda answer: answers.append(answer.status_code)]})
    with (
        sync_client(stack.url, max_retries=3, http_client=http) as client,
        pytest.raises(openai.InternalServerError) as raised,
    ):
        client.embeddings.create(model="org/broken", input="BROKEN")
    assert answers == [500]
    body: Any = raised.value.body
    assert (body["type"], body["retryable"]) == ("server_error", False)
    job = stack.client.get(f"/v1/jobs/{body['job_id']}").json()
    assert job["status"] == "failed"
    assert raised.value.response.headers["x-roost-job-id"] == body["job_id"]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [(b"{", "application/json", 400), (b"[]", "application/json", 400), (b"x", "text/plain", 415)],
)
def test_a_body_that_is_no_object_is_told_in_the_envelope(stack: Any, content: bytes, kind: str, status: int) -> None:
    answer = stack.client.post("/v1/embeddings", content=content, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_what_is_not_there_says_where_all_paths_are(clients: Both) -> None:
    for error in clients.refused(lambda c: c.moderations.create(input="a"), openai.NotFoundError):
        assert error.code == "route_not_found"
        assert "/openapi.json" in error.message


def test_the_client_tries_again_until_the_service_is_back(stack: Any) -> None:
    refused = threading.Event()

    def seen(answer: Any) -> None:
        if answer.status_code == 503:
            assert answer.headers["retry-after"].isdigit()
            refused.set()

    http = openai.DefaultHttpxClient(event_hooks={"response": [seen]})
    found: list[Any] = []
    with sync_client(stack.url, max_retries=60, http_client=http) as client:
        stack.part("valkey").kill()
        stack.part("postgres").kill()

        def ask() -> None:
            found.append(client.embeddings.with_raw_response.create(model="roost/fake", input="a"))

        asking = threading.Thread(target=ask)
        asking.start()
        assert refused.wait(30)
        stack.part("postgres").start()
        stack.part("valkey").start()
        asking.join(60)
    assert found[0].retries_taken > 0
    assert len(found[0].parse().data) == 1
