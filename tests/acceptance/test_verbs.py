"""Every verb through the whole stack: JSON and msgpack, files as they are, and what bad input gets, without weights."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import httpx
import msgpack
import pytest

from api.schemas import JobWithResult, ResultObject
from tests.acceptance.fakes import fake

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]

PNG = bytes(range(256)) * 40
WRITER = {"family": "fake_generator", "tasks": {"generate": {"max_new_tokens": 4}}, "parameters": 0, "max_length": 512}
LOCKED = WRITER | {"family": "causal_lm"}
"""Its options are checked, and it is never loaded."""
PARSER = {
    "family": "fake_parser",
    "tasks": {"extract": {"kinds": ["document"]}},
    "parameters": 0,
    "max_length": 50,
    "unit": "pages",
}
SCORER = fake(faults=[{"kind": "nan", "when_text": "SPOILT"}]) | {"tasks": {"score": {}}}


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models={"writer": WRITER, "locked": LOCKED, "parser": PARSER, "scorer": SCORER})


@pytest.fixture(scope="module")
def http(stack: Any) -> httpx.Client:
    client: httpx.Client = stack.client
    return client


def strictly(text: str) -> Any:
    """JSON as a strict reader has it: NaN and Infinity are errors."""

    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is no JSON")

    return json.loads(text, parse_constant=refuse)


def ended(http: httpx.Client, body: dict[str, Any], *, wait: bool = True) -> dict[str, Any]:
    """The job with its result, waited for in one call or fetched once it has ended."""
    if wait:
        answer = http.post("/v1/jobs", json=body, headers={"Prefer": "wait=30"})
        assert answer.status_code == 200, answer.text
        return dict(strictly(answer.text))
    answer = http.post("/v1/jobs", json=body)
    assert answer.status_code == 202, answer.text
    url = answer.json()["urls"]["self"]
    job = strictly(http.get(url, params={"wait": 30}).text)
    result = strictly(http.get(f"{url}/result").text)
    return {**job, "result": result if "object" in result else None, "failed": result}


def refused(http: httpx.Client, body: dict[str, Any] | bytes, status: int = 422) -> dict[str, Any]:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = http.post("/v1/jobs", content=sent, headers={"Content-Type": "application/json", "Prefer": "wait=30"})
    assert answer.status_code == status, answer.text
    return dict(answer.json()["error"])


FAKE = "roost/fake"
JOBS: dict[str, dict[str, Any]] = {
    "encode": {"verb": "encode", "model": FAKE, "items": ["a text", {"id": "b", "text": "another"}]},
    "score": {"verb": "score", "model": FAKE, "query": "what?", "items": ["a", {"id": "b", "text": "c"}]},
    "extract": {"verb": "extract", "model": FAKE, "items": ["Ada met Alan", "nobody"], "labels": ["person"]},
    "generate": {"verb": "generate", "model": "writer", "items": ["tell me"], "options": {"max_tokens": 3}},
    "document": {"verb": "extract", "model": "parser", "items": ["page one\fpage two"]},
}


@pytest.mark.parametrize("name", list(JOBS))
def test_every_verb_is_answered_alike_in_json_and_in_msgpack(http: httpx.Client, name: str) -> None:
    body = JOBS[name]
    job = JobWithResult.model_validate(ended(http, body))
    assert (job.status, job.items_failed) == ("succeeded", 0)
    packed = http.post(
        "/v1/jobs",
        content=msgpack.packb(body),
        headers={"Content-Type": "application/msgpack", "Accept": "application/msgpack", "Prefer": "wait=30"},
    )
    assert packed.headers["content-type"] == "application/msgpack"
    found = msgpack.unpackb(packed.content)
    plain = ended(http, body)["result"]
    stored = http.get(f"{found['urls']['result']}").json()
    ResultObject.model_validate(stored)
    assert stored["items"] == plain["items"]
    assert stored.get("scores") == plain.get("scores")
    assert found["usage"]["tokens"] == job.usage.tokens > 0  # type: ignore[union-attr]


def test_files_arrive_byte_for_byte_in_either_form_of_a_body(http: httpx.Client) -> None:
    digest = blake2b(PNG, digest_size=16).hexdigest()
    base = {"verb": "extract", "model": FAKE}

    def items(data: Any) -> list[Any]:
        return [{"images": [{"data": data, "format": "png"}] * 2, "text": "Ada"}, {"document": {"data": data}}]

    text = ended(http, {**base, "items": items(base64.b64encode(PNG).decode())})
    packed = http.post(
        "/v1/jobs",
        content=msgpack.packb({**base, "items": items(PNG)}),
        headers={"Content-Type": "application/msgpack", "Prefer": "wait=30"},
    ).json()
    for job in (text, packed):
        first, second = job["result"]["items"]
        assert [one["blake2b"] for one in first["data"]["images"]] == [digest] * 2
        assert second["data"]["document"] == [{"bytes": len(PNG), "blake2b": digest}]
        assert first["entities"][0]["text"] == "Ada"
        assert job["usage"]["images"] == 2


@pytest.mark.parametrize("wait", [True, False])
def test_a_score_that_is_no_number_leaves_the_others_their_ranks(http: httpx.Client, *, wait: bool) -> None:
    job = ended(http, {"verb": "score", "model": "scorer", "query": "q", "items": ["a", "SPOILT", "c"]}, wait=wait)
    rows, scores = job["result"]["items"], job["result"]["scores"]
    assert (job["status"], job["items_failed"]) == ("succeeded", 1)
    assert rows[1]["error"]["code"] == "not_finite"
    assert sorted(entry["index"] for entry in scores) == [0, 2]
    assert [rows[entry["index"]]["rank"] for entry in scores] == [0, 1]


@pytest.mark.parametrize(("top_n", "count"), [(0, 0), (3, 3), (99, 5), (None, 5)])
def test_a_ranking_points_into_the_request(http: httpx.Client, top_n: int | None, count: int) -> None:
    items = ["one", {"id": "x", "text": "same"}, "two", {"id": "x", "text": "same"}, {"text": "three"}]
    options = {} if top_n is None else {"top_n": top_n}
    result = ended(http, {"verb": "score", "model": FAKE, "query": "q", "items": items, "options": options})["result"]
    rows, scores = result["items"], result["scores"]
    assert len(scores) == count
    assert rows[1]["score"] == rows[3]["score"]
    assert rows[1]["rank"] + 1 == rows[3]["rank"]
    assert [entry["score"] for entry in scores] == sorted((row["score"] for row in rows), reverse=True)[:count]
    assert all(rows[entry["index"]]["rank"] == entry["rank"] for entry in scores)
    assert all(entry.get("item_id") == rows[entry["index"]].get("id") for entry in scores)


def test_a_ranking_of_fewer_than_none_is_refused(http: httpx.Client) -> None:
    assert refused(http, {**JOBS["score"], "options": {"top_n": -1}})["param"] == "options.top_n"


@pytest.mark.parametrize("wait", [True, False])
def test_blank_items_keep_their_slots_and_ids(http: httpx.Client, *, wait: bool) -> None:
    items = [{"id": i, "text": t} for i, t in zip("abcde", ["Cat", "", "Dog", " \n", "Fish"], strict=True)]
    scored = ended(http, {"verb": "score", "model": FAKE, "query": "q", "items": items}, wait=wait)["result"]
    assert [row["id"] for row in scored["items"]] == list("abcde")
    codes = [row.get("error", {}).get("code") for row in scored["items"]]
    assert codes == [None, "empty_text", None, "empty_text", None]
    alone = ended(http, {"verb": "score", "model": FAKE, "query": "q", "items": ["Dog"]})["result"]["items"][0]
    assert scored["items"][2]["score"] == alone["score"]
    found = ended(http, {"verb": "extract", "model": FAKE, "items": items}, wait=wait)["result"]["items"]
    assert [[one["text"] for one in row["entities"]] for row in found] == [["Cat"], [], ["Dog"], [], ["Fish"]]


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("text", ["", "   ", "\n\t"])
def test_a_job_of_blanks_alone_ends_the_same_way_on_both_paths(http: httpx.Client, text: str, *, wait: bool) -> None:
    for body in ({"verb": "score", "model": FAKE, "query": "q"}, {"verb": "generate", "model": "writer"}):
        job = ended(http, {**body, "items": [text]}, wait=wait)
        assert (job["status"], job["error"]["code"]) == ("failed", "empty_text")
    assert ended(http, JOBS["score"])["status"] == "succeeded"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"items": []}, "items"),
        ({"items": [[]]}, "items[0]"),
        ({"items": [["a"]]}, "items[0]"),
        ({"query": ""}, "query"),
        ({"query": None}, "query"),
        ({"query": ["q"]}, "query"),
    ],
)
def test_a_score_of_nothing_or_against_nothing_is_refused(
    http: httpx.Client, change: dict[str, Any], param: str
) -> None:
    assert refused(http, {**JOBS["score"], **change})["param"] == param


HALF, WHOLE = "\\ud83d", "\\ud83d\\ude00"


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ('{"verb":"score","model":"roost/fake","query":"%s","items":["a"]}', "query"),
        ('{"verb":"score","model":"roost/fake","query":{"text":"%s"},"items":["a"]}', "query.text"),
        ('{"verb":"extract","model":"roost/fake","labels":["a","%s"],"items":["a"]}', "labels[1]"),
        ('{"verb":"generate","model":"writer","items":["a","%s"]}', "items[1]"),
        ('{"verb":"generate","model":"writer","items":["a"],"options":{"stop":["%s"]}}', "options.stop[0]"),
    ],
)
def test_half_a_pair_is_named_and_a_whole_one_is_text(http: httpx.Client, raw: str, param: str) -> None:
    assert refused(http, (raw % HALF).encode())["param"] == param
    answer = http.post(
        "/v1/jobs", content=raw % WHOLE, headers={"Content-Type": "application/json", "Prefer": "wait=30"}
    )
    assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")


def test_offsets_are_code_points_of_the_text_as_it_was_sent(http: httpx.Client) -> None:
    text = "İstanbul \U0001f468‍\U0001f469 \0 e\u0301 \U0001d400da"
    (row,) = ended(http, {"verb": "extract", "model": FAKE, "items": [text]})["result"]["items"]
    assert [text[one["start"] : one["end"]] for one in row["entities"]] == [one["text"] for one in row["entities"]]
    assert [one["text"] for one in row["entities"]] == ["İstanbul", "\U0001d400da"]


@pytest.mark.parametrize("literal", ["<|endoftext|>", "[CLS] [SEP] [MASK]", "</s>", "<|im_end|>", "a\0b"])
def test_literals_of_special_tokens_and_nul_are_text(http: httpx.Client, literal: str) -> None:
    for name, more in (("score", {"query": literal}), ("extract", {}), ("generate", {}), ("document", {})):
        job = ended(http, {**JOBS[name], **more, "items": [literal]})
        assert (job["status"], job["items_failed"]) == ("succeeded", 0), name
        assert job["usage"]["tokens"] > 0
    assert ended(http, {**JOBS["document"], "items": [literal]})["result"]["items"][0]["data"]["text"] == literal


@pytest.mark.parametrize(
    ("name", "change", "param"),
    [
        ("extract", {"labels": ["a\0"]}, "labels[0]"),
        ("generate", {"options": {"stop": "a\0"}}, "options.stop"),
        ("score", {"query": {"id": "a\0", "text": "q"}}, "query.id"),
        ("extract", {"labels": None, "options": {"labels": ["a"], "threshold": "NaN"}}, "options.threshold"),
        ("extract", {"items": [{"document": {"data": "%%%"}}]}, "items[0].document.data"),
        ("extract", {"items": [{"images": [{"data": "https://a.b/c.png"}]}]}, "items[0].images[0].data"),
        ("score", {"items": [{"multivector": [[1.0]]}]}, "items[0]"),
    ],
)
def test_what_a_verb_cannot_take_is_refused_by_its_place(
    http: httpx.Client, name: str, change: dict[str, Any], param: str
) -> None:
    assert refused(http, {**JOBS[name], **change})["param"] == param


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"type": "strng"}, ".type"),
        ({"properties": ["a"]}, ".properties"),
        ({"enum": []}, ".enum"),
        ({"description": "x" * 5_000_000}, ""),
        ({"properties": {"a": {"uniqueItems": True}}}, ".properties.a.uniqueItems"),
    ],
)
def test_a_schema_that_no_output_can_be_held_to_is_refused_before_queueing(
    http: httpx.Client, schema: dict[str, Any], param: str
) -> None:
    body = {**JOBS["generate"], "model": "locked", "options": {"grammar": {"json_schema": schema}}}
    assert refused(http, body)["param"] == f"options.grammar.json_schema{param}"
    assert ended(http, JOBS["generate"])["status"] == "succeeded"


def test_a_model_tells_what_it_takes(http: httpx.Client) -> None:
    model = http.get("/v1/models/roost/fake").json()
    assert model["verbs"] == ["encode", "score", "extract"]
    assert model["inputs"] == ["text", "image", "audio", "document"]
    assert set(model["options"]) == set(model["verbs"])
    assert {"labels", "threshold"} <= set(model["options"]["extract"])
    assert model["tasks"]["score"]["scale"] == "probability"
