"""Files and batches by OpenAI's official client, over real processes: uploads in both forms, results, bad input."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from tests.acceptance.fakes import fake, timed, writer
from tests.acceptance.openai_clients import sync_client

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

ENDED = ("completed", "failed", "expired", "cancelled")
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    models = {
        "org/fast": fake(),
        "org/slow": timed(cost=400.0),
        "org/writer": writer(),
        "org/ranker": fake() | {"tasks": {"score": {}}},
        "org/broken": fake(faults=[{"kind": "error", "when_text": "BROKEN"}]),
    }
    return start_stack(models=models, max_file_bytes=600_000)


@pytest.fixture(scope="module")
def client(stack: Any) -> Iterator[OpenAI]:
    with sync_client(stack.url) as made:
        yield made


def line(custom_id: str, body: Mapping[str, Any], url: str = "/v1/embeddings") -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": dict(body)}


def embed(custom_id: str, text: str, model: str = "org/fast") -> dict[str, Any]:
    return line(custom_id, {"model": model, "input": text})


def jsonl(lines: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def start(client: OpenAI, content: bytes, endpoint: str = "/v1/embeddings", **fields: Any) -> Batch:
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    call: Any = client.batches.create
    made: Batch = call(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields)
    return made


def end(client: OpenAI, batch: Batch) -> Batch:
    """The batch once it has ended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        batch = client.batches.retrieve(batch.id)
        if batch.status in ENDED:
            return batch
        time.sleep(0.1)
    pytest.fail(f"the batch did not end: {batch}")


def lines_of(client: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(one) for one in client.files.content(file_id).text.splitlines()]


def test_a_batch_of_embeddings_is_what_the_calls_would_have_given(client: OpenAI) -> None:
    wanted = {f"r{n}": f"text number {n}" for n in range(300)}
    batch = start(client, jsonl([embed(name, text) for name, text in wanted.items()]), metadata={"for": "tests"})
    assert (batch.status, batch.endpoint, batch.metadata) == ("validating", "/v1/embeddings", {"for": "tests"})

    batch = end(client, batch)

    assert batch.status == "completed", batch
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 300, "completed": 300, "failed": 0}
    assert batch.model == "org/fast"
    assert batch.error_file_id is None
    assert batch.completed_at is not None
    found = lines_of(client, batch.output_file_id)
    assert [one["custom_id"] for one in found] == list(wanted)
    assert len({one["id"] for one in found}) == 300
    call = client.embeddings.create(model="org/fast", input=wanted["r7"], encoding_format="float")
    body = found[7]["response"]["body"]
    assert (found[7]["response"]["status_code"], found[7]["error"]) == (200, None)
    assert body["data"][0]["embedding"] == call.data[0].embedding
    assert batch.usage is not None
    assert batch.usage.input_tokens == sum(one["response"]["body"]["usage"]["prompt_tokens"] for one in found)


@pytest.mark.parametrize(
    ("endpoint", "body", "answer"),
    [
        ("/v1/chat/completions", {"model": "org/writer", "messages": [{"role": "user", "content": "a b"}]}, "choices"),
        ("/v1/completions", {"model": "org/writer", "prompt": "a b", "max_tokens": 4}, "choices"),
        ("/v1/rerank", {"model": "org/ranker", "query": "a", "documents": ["b", "c"]}, "results"),
        ("/v1/score", {"model": "org/ranker", "query": "a", "items": ["b", "c"]}, "scores"),
        ("/v1/encode", {"model": "org/fast", "items": ["a", {"id": "x", "text": "b"}]}, "items"),
        ("/v1/generate", {"model": "org/writer", "items": ["a b"], "options": {"max_tokens": 3}}, "items"),
    ],
)
def test_every_endpoint_answers_in_its_own_shape(
    client: OpenAI, endpoint: str, body: Mapping[str, Any], answer: str
) -> None:
    batch = end(client, start(client, jsonl([line("one", body, endpoint)]), endpoint))

    (found,) = lines_of(client, batch.output_file_id)
    assert batch.status == "completed"
    assert found["response"]["body"][answer]


def test_bad_lines_of_good_form_are_in_the_error_file_and_their_neighbours_in_the_output(client: OpenAI) -> None:
    lines = [
        embed("good", "fine"),
        embed("no model", "fine", "org/nothing"),
        line("bad option", {"model": "org/fast", "input": "fine", "dimensionz": 3}),
        line("stream", {"model": "org/fast", "input": "fine", "stream": True}),
        embed("broken", "BROKEN", "org/broken"),
        embed("also good", "fine"),
    ]
    batch = end(client, start(client, jsonl(lines)))

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 6, "completed": 2, "failed": 4}
    assert [one["custom_id"] for one in lines_of(client, batch.output_file_id)] == ["good", "also good"]
    errors = {one["custom_id"]: one["response"] for one in lines_of(client, batch.error_file_id)}
    assert {name: one["status_code"] for name, one in errors.items()} == {
        "no model": 404,
        "bad option": 400,
        "stream": 400,
        "broken": 500,
    }
    assert errors["no model"]["body"]["error"]["param"] == "model"
    assert "did you mean 'dimensions'" in errors["bad option"]["body"]["error"]["message"]


def test_a_batch_whose_every_line_fails_is_no_success(client: OpenAI) -> None:
    batch = end(client, start(client, jsonl([embed(str(n), "BROKEN", "org/broken") for n in range(3)])))

    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert batch.errors.data[0].code == "all_lines_failed"
    assert len(lines_of(client, batch.error_file_id)) == 3


def test_a_file_that_is_no_batch_is_refused_with_the_numbers_of_its_lines(client: OpenAI) -> None:
    content = (
        jsonl([embed("a", "fine"), embed("b", "fine")])
        + b'{"custom_id": "c", \n'
        + b"\n"
        + jsonl([embed("a", "again"), line("d", {}, "/v1/chat/completions"), {"custom_id": "e"}])
    )
    batch = end(client, start(client, content))

    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert batch.output_file_id is None
    assert batch.errors is not None
    assert batch.errors.data is not None
    found = [(one.code, one.line, one.param) for one in batch.errors.data]
    assert found == [
        ("invalid_json_line", 3, None),
        ("mismatched_url", 6, "url"),
        ("missing_required_parameter", 7, "method"),
        ("duplicate_custom_id", 5, "custom_id"),
    ]
    duplicate = batch.errors.data[3].message or ""
    assert "Line 5" in duplicate
    assert "line 1" in duplicate


def test_a_cancelled_batch_keeps_what_is_done_and_lists_what_had_begun(client: OpenAI, stack: Any) -> None:
    batch = start(client, jsonl([embed(str(n), f"text {n}", "org/slow") for n in range(600)]))
    until = time.monotonic() + PATIENCE_S
    while not (batch.request_counts and batch.request_counts.completed):
        assert time.monotonic() < until, batch
        batch = client.batches.retrieve(batch.id)
    tagged = stack.client.get("/v1/jobs", params={"tag": f"batch:{batch.id}", "limit": 5}).json()["data"]
    assert {job["lane"] for job in tagged} == {"bulk"}

    assert client.batches.cancel(batch.id).status in {"cancelling", "cancelled"}
    began = time.monotonic()
    batch = end(client, batch)

    assert time.monotonic() - began < PATIENCE_S
    assert batch.status == "cancelled"
    assert batch.cancelled_at is not None
    done, rest = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
    assert done
    assert sorted(int(one["custom_id"]) for one in done + rest) == list(range(600))
    assert {one["error"]["code"] for one in rest} == {"batch_cancelled"}
    assert client.batches.cancel(batch.id).status == "cancelled"


def test_what_has_ended_cannot_be_cancelled(client: OpenAI) -> None:
    batch = end(client, start(client, jsonl([embed("a", "fine")])))

    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch.id)


@pytest.mark.parametrize(("window", "seconds"), [("24h", 86_400), ("90m", 5_400), ("14d", 14 * 86_400)])
def test_a_window_ends_when_it_says(client: OpenAI, stack: Any, window: str, seconds: int) -> None:
    file = client.files.create(file=jsonl([embed("a", "fine")]), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": "/v1/embeddings", "completion_window": window}

    made = stack.client.post("/v1/batches", json=body).json()

    assert made["expires_at"] - made["created_at"] == seconds


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"endpoint": "/v1/embedings"}, "endpoint"),
        ({"completion_window": "tomorrow"}, "completion_window"),
        ({"completion_window": "15d"}, "completion_window"),
        ({"input_file_id": "file-nothing"}, "input_file_id"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a": "\0"}}, "metadata.a"),
        ({"metadata": {"a\0": "b"}}, "metadata.a\0.[key]"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "output_expires_after.seconds"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_is_wrong_with_a_batch_is_named(client: OpenAI, fields: Mapping[str, Any], param: str, stack: Any) -> None:
    file = client.files.create(file=jsonl([embed("a", "fine")]), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": "/v1/embeddings", "completion_window": "24h", **fields}

    answer = stack.client.post("/v1/batches", json=body)

    assert answer.status_code in {400, 404}, answer.text
    assert answer.json()["error"]["param"] == param


def test_files_come_back_as_they_were_and_are_listed_and_deleted(client: OpenAI) -> None:
    content = jsonl([embed("a", "ä fine text")])
    expires: Any = {"anchor": "created_at", "seconds": 3600}
    file = client.files.create(file=("../../etc/über name.jsonl", content), purpose="batch", expires_after=expires)

    assert (file.filename, file.bytes, file.purpose, file.status) == (
        "über name.jsonl",
        len(content),
        "batch",
        "processed",
    )
    assert file.expires_at == file.created_at + 3600
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == content
    first = client.files.create(file=b"x\n", purpose="batch")
    page = client.files.list(limit=1, purpose="batch")
    assert [one.id for one in page.data] == [first.id]
    assert [one.id for one in page.get_next_page().data] == [file.id]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)
    with pytest.raises(openai.NotFoundError):
        client.files.delete(file.id)


def test_a_file_may_be_the_body_itself(stack: Any, client: OpenAI) -> None:
    content = jsonl([embed("a", "fine")])
    answer = stack.client.post(
        "/v1/files",
        params={"purpose": "batch", "filename": "up.jsonl"},
        content=content,
        headers={"content-type": "application/jsonl", "accept": "application/json"},
    )

    file = answer.json()
    assert (answer.status_code, file["filename"], file["bytes"]) == (200, "up.jsonl", len(content))
    assert client.files.content(file["id"]).read() == content


@pytest.mark.parametrize("raw", [True, False])
def test_a_file_that_is_too_large_is_refused_by_the_name_of_the_limit(stack: Any, *, raw: bool) -> None:
    content = b"x" * 700_000

    def pieces() -> Iterator[bytes]:
        yield from (content[at : at + 10_000] for at in range(0, len(content), 10_000))

    if raw:
        answer = stack.client.post(
            "/v1/files?purpose=batch", content=pieces(), headers={"content-type": "application/jsonl"}
        )
    else:
        answer = stack.client.post("/v1/files", files={"file": ("a", content)}, data={"purpose": "batch"})

    assert answer.status_code == 413
    assert "ROOST_MAX_FILE_BYTES" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("files", "data", "param"),
    [
        ({"file": ("a", b"x")}, {}, "purpose"),
        ({"file": ("a", b"x")}, {"purpose": "fine-tune"}, "purpose"),
        ({"file": ("a", b"x")}, {"purpose": "batch", "porpose": "batch"}, "porpose"),
        ({"file": ("a", b"")}, {"purpose": "batch"}, "file"),
        ({"other": ("a", b"x")}, {"purpose": "batch"}, "other"),
        ({"file": ("a", b"x")}, {"purpose": "batch", "expires_after[anchor]": "now"}, "expires_after.anchor"),
    ],
)
def test_what_is_wrong_with_an_upload_is_named(
    stack: Any, files: Mapping[str, Any], data: Mapping[str, str], param: str
) -> None:
    answer = stack.client.post("/v1/files", files=files, data=data)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_file_that_a_batch_reads_cannot_be_deleted(client: OpenAI) -> None:
    batch = start(client, jsonl([embed(str(n), f"text {n}", "org/slow") for n in range(50)]))

    with pytest.raises(openai.ConflictError):
        client.files.delete(batch.input_file_id)

    client.batches.cancel(batch.id)
    end(client, batch)
    assert client.files.delete(batch.input_file_id).deleted


def test_batches_are_listed_newest_first(client: OpenAI) -> None:
    made = [start(client, jsonl([embed("a", "fine")])) for _ in range(3)]

    page = client.batches.list(limit=2)

    assert [one.id for one in page.data] == [made[2].id, made[1].id]
    assert page.get_next_page().data[0].id == made[0].id


def test_a_feeder_that_is_killed_twice_is_followed_by_one_that_goes_on(client: OpenAI, stack: Any) -> None:
    """BAC55: every line once, counts that move, a bad line in the middle that is its own error alone."""
    lines = [embed(str(n), f"kept {n}") for n in range(3000)]
    lines[1500] = embed("1500", "lost", "org/nothing")
    batch = start(client, jsonl(lines))
    feeder = stack.part("feeder")
    for done in (300, 1800):
        until = time.monotonic() + PATIENCE_S
        while not (batch.request_counts and batch.request_counts.completed >= done):
            assert time.monotonic() < until, batch
            batch = client.batches.retrieve(batch.id)
        assert batch.status == "in_progress"
        feeder.kill()
        feeder.start()

    batch = end(client, batch)

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 3000, "completed": 2999, "failed": 1}
    found, (bad,) = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
    assert [int(one["custom_id"]) for one in found] == [n for n in range(3000) if n != 1500]
    assert (bad["custom_id"], bad["response"]["status_code"]) == ("1500", 404)
    assert not stack.client.get("/v1/jobs", params={"tag": f"batch:{batch.id}"}).json()["data"]


def test_a_batch_outlives_its_worker_the_queue_and_the_database(client: OpenAI, stack: Any) -> None:
    batch = start(client, jsonl([embed(str(n), f"lasting {n}") for n in range(2000)]))

    def restart(name: str) -> None:
        part = stack.part(name)
        part.kill()
        part.start()

    for done, lose in (
        (200, stack.wipe_valkey),
        (600, lambda: restart("cpu")),
        (1000, lambda: restart("postgres")),
        (1400, lambda: restart("api")),
    ):
        until = time.monotonic() + PATIENCE_S
        while not (batch.request_counts and batch.request_counts.completed >= done):
            assert time.monotonic() < until, batch
            with contextlib.suppress(openai.InternalServerError):  # 503 until all have their connections again
                batch = client.batches.retrieve(batch.id)
        lose()

    batch = end(client, batch)

    assert batch.status == "completed"
    assert [int(one["custom_id"]) for one in lines_of(client, batch.output_file_id)] == list(range(2000))
