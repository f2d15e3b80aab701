"""POST /v1/embeddings by OpenAI's official client, sync and async, with and without weights."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from api.compat.openai.embeddings import EmbeddingsReply
from tests.acceptance.fakes import fake
from tests.acceptance.openai_clients import Both

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
DIMS = 512
NESTED = fake(dims=DIMS) | {"tasks": {"encode": {"dims": DIMS, "matryoshka": [1, 256]}}}
TEXTS = ["Owls hunt at night.", "A rook is a bird, and a piece of chess.", "Wrens are small."]


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models={"org/nested": NESTED, "short": fake(max_length=8)})


@pytest.fixture(scope="module")
def clients(stack: Any) -> Iterator[Both]:
    both = Both(stack.url)
    yield both
    both.close()


@pytest.fixture(scope="module")
def http(stack: Any) -> httpx.Client:
    client: httpx.Client = stack.client
    return client


def decoded(rows: list[dict[str, Any]]) -> NDArray[np.float32]:
    """The vectors of the native API's base64, one row an item."""
    return np.stack([np.frombuffer(b64decode(row["dense"]["values"]), "<f4") for row in rows])


def native(http: httpx.Client, model: str, items: list[str]) -> NDArray[np.float32]:
    """The vectors of a job of the native API."""
    body = {"verb": "encode", "model": model, "items": items}
    answer = http.post("/v1/jobs", params={"encoding": "base64"}, json=body, headers={"Prefer": "wait=60"})
    return decoded(answer.json()["result"]["items"])


def embedded(**fields: Any) -> Callable[[Any], Any]:
    return lambda c: c.embeddings.create(**fields)


def vectors(reply: Any) -> NDArray[np.float32]:
    return np.array([entry.embedding for entry in reply.data], np.float32)


@pytest.mark.parametrize("given", [TEXTS[0], TEXTS], ids=["one", "three"])
@pytest.mark.parametrize("form", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}], ids=str)
def test_every_form_decodes_to_the_native_vectors(
    clients: Both, http: httpx.Client, given: Any, form: dict[str, Any]
) -> None:
    asked = {"model": MINILM, "input": given, "user": "someone", **form}
    for raw in clients.call(lambda c: c.embeddings.with_raw_response.create(**asked)):
        reply = raw.parse()
        if form.get("encoding_format") == "base64":
            found = np.stack([np.frombuffer(b64decode(entry.embedding), "<f4") for entry in reply.data])
        else:
            found = vectors(reply)
        # The same job by the native API: two runs of a model may differ in the last bit.
        stored = http.get(f"/v1/jobs/{raw.headers['x-roost-job-id']}/result", params={"encoding": "base64"}).json()
        expected = decoded(stored["items"])
        assert found.shape == expected.shape == (1 if isinstance(given, str) else 3, 384)
        assert np.array_equal(found, expected)
        assert [entry.index for entry in reply.data] == list(range(len(expected)))
        assert {entry.object for entry in reply.data} == {"embedding"}
        assert (reply.object, reply.model) == ("list", MINILM)
        assert reply.usage.prompt_tokens == reply.usage.total_tokens == stored["usage"]["tokens"] > 0


def test_a_reply_has_the_fields_of_its_schema_and_tells_its_job(clients: Both, http: httpx.Client) -> None:
    for raw in clients.call(lambda c: c.embeddings.with_raw_response.create(model="roost/fake", input=TEXTS)):
        body = EmbeddingsReply.model_validate_json(raw.text)
        assert isinstance(body.data[0].embedding, str)
        job = http.get(f"/v1/jobs/{raw.headers['x-roost-job-id']}").json()
        assert (job["status"], job["verb"], job["items"]) == ("succeeded", "encode", 3)


@pytest.mark.parametrize("dimensions", [1, 256, DIMS])
def test_a_length_that_the_model_was_trained_for_is_cut_then_normalised(
    clients: Both, http: httpx.Client, dimensions: int
) -> None:
    cut = native(http, "org/nested", TEXTS)[:, :dimensions]
    expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    for reply in clients.call(embedded(model="org/nested", input=TEXTS, dimensions=dimensions)):
        found = vectors(reply)
        assert found.shape == (3, dimensions)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "dimensions"),
    [("org/nested", DIMS + 1), ("org/nested", 0), ("org/nested", -1), ("org/nested", 255), (MINILM, 256)],
)
def test_any_other_length_is_refused(clients: Both, model: str, dimensions: int) -> None:
    for error in clients.refused(embedded(model=model, input="a", dimensions=dimensions)):
        assert error.param == "dimensions"
        assert error.type == "invalid_request_error"


def test_neighbours_in_a_batch_keep_their_own_lengths(clients: Both) -> None:
    asked = [1, 256, DIMS] * 8

    def length(dimensions: int) -> int:
        reply = clients.sync.embeddings.create(model="org/nested", input="a", dimensions=dimensions)
        return len(reply.data[0].embedding)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(length, asked)) == asked


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ("", "input"),
        ("   ", "input"),
        ("\n\t", "input"),
        ([], "input"),
        ([""], "input[0]"),
        ([[]], "input"),
        (["cat", "", "dog", " ", "fish"], "input[1]"),
    ],
    ids=repr,
)
def test_nothing_to_embed_is_refused_by_its_place_and_harms_nobody(clients: Both, given: Any, param: str) -> None:
    for error in clients.refused(embedded(model="roost/fake", input=given)):
        assert error.param == param
    assert clients.call(embedded(model="roost/fake", input="cat"))[1].data


@pytest.mark.parametrize("given", [[101, 2023, 102], [[101, 102], [103]]], ids=repr)
def test_tokens_are_refused_with_what_to_set_instead(clients: Both, given: Any) -> None:
    for error in clients.refused(embedded(model=MINILM, input=given)):
        assert error.param == "input"
        assert "check_embedding_ctx_length=False" in error.message


def test_a_text_that_is_too_long_is_refused_unless_it_may_be_cut(clients: Both) -> None:
    texts = ["short", "word " * 50]
    for error in clients.refused(embedded(model="short", input=texts)):
        assert (error.param, error.code) == ("input[1]", "context_length_exceeded")
        assert "'input[1]' has 65 tokens and the model reads 8; shorten it or send 'truncate': true." in error.message
    cut = {"truncate": True}
    for reply in clients.call(embedded(model="short", input=texts, extra_body=cut)):
        assert len(reply.data) == 2


def test_an_unknown_field_is_refused_with_the_nearest_one(clients: Both) -> None:
    extra = {"dimension": 4}
    for error in clients.refused(embedded(model="roost/fake", input="a", extra_body=extra)):
        assert error.param == "dimension"
        assert "did you mean 'dimensions'?" in error.message


def test_literals_of_control_tokens_are_text(clients: Both) -> None:
    texts = ["<|endoftext|>", "[CLS] [SEP] [MASK]", "</s>", "<|im_end|>"]
    for reply in clients.call(embedded(model=MINILM, input=texts)):
        assert len(reply.data) == 4
        # More than the two tokens around them: they were read as words.
        assert reply.usage.prompt_tokens > 4 * 3


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00"])
def test_half_an_emoji_is_refused_by_its_field(http: httpx.Client, half: str) -> None:
    for field, body in (
        ("input[1]", f'{{"model": "roost/fake", "input": ["a", "{half}"]}}'),
        ("model", f'{{"model": "{half}", "input": "a"}}'),
    ):
        answer = http.post("/v1/embeddings", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == field
    whole = '{"model": "roost/fake", "input": "\\ud83d\\ude00"}'
    answer = http.post("/v1/embeddings", content=whole, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200


def test_a_model_that_gives_no_such_vectors_is_the_field_at_fault(clients: Both) -> None:
    for model in ("roost/minilm-token-states", "roost/smollm2-135m-gguf"):
        for error in clients.refused(embedded(model=model, input="a")):
            assert error.param == "model"
