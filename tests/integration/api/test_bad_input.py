"""What bad input gets: an error for the request that names the field, or for the item alone; never a 500."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from api.compat.openai.errors import OpenAIErrorReply
from api.compat.sie.errors import SieErrorReply
from api.schemas import ErrorReply

if TYPE_CHECKING:
    import httpx

    from tests.integration.api.conftest import Api, Consumer

PLAIN: dict[str, Any] = {"verb": "encode", "model": "org/model", "items": ["a"]}


def told(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    return ErrorReply.model_validate(response.json()).error.model_dump()


async def post(api: Api, raw: bytes, **headers: str) -> httpx.Response:
    return await api.http.post("/v1/jobs", content=raw, headers={"content-type": "application/json", **headers})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"items": []}, "items"),
        ({"items": [[]]}, "items[0]"),
        ({"items": [None]}, "items[0]"),
        ({"items": ["a", "b", "c", {"text": 1}]}, "items[3].text"),
        ({"items": [{"id": "a\0", "text": "a"}]}, "items[0].id"),
        ({"tags": ["a\0"]}, "tags[0]"),
        ({"options": {"instruction": "a\0"}}, "options.instruction"),
        ({"options": {"normalise": True}}, "options.normalise"),
        ({"options": {"dimensions": 3}}, "options.dimensions"),
        ({"options": {"dimensions": 0}}, "options.dimensions"),
        ({"options": {"dimensions": -1}}, "options.dimensions"),
        ({"options": {"dimensions": 9}}, "options.dimensions"),
        ({"model": "org/plain", "options": {"dimensions": 2}}, "options.dimensions"),
        ({"options": {"output_dtype": "int4"}}, "options.output_dtype"),
        ({"options": {"prompt": "passage"}}, "options.prompt"),
        ({"verb": "score", "query": "q"}, "verb"),
        ({"verb": "score"}, "query"),
        ({"verb": "generate"}, "verb"),
        ({"verb": "embed"}, "verb"),
        ({"priority": "high"}, "priority"),
        ({"itmes": ["a"]}, "itmes"),
    ],
)
async def test_a_wrong_field_is_a_422_that_names_it(api: Api, fields: dict[str, Any], param: str) -> None:
    error = told(await api.http.post("/v1/jobs", json={**PLAIN, **fields}), 422)
    assert error["param"] == param


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        ('{"options": {"threshold": NaN}}', "options.threshold"),
        ('{"deadline_s": Infinity}', "deadline_s"),
        ('{"items": ["\\ud83d"]}', "items[0]"),
        ('{"items": [{"text": "\\ude00"}]}', "items[0].text"),
        ('{"tags": ["\\ud83d"]}', "tags[0]"),
        ('{"model": "\\ud83d"}', "model"),
        ('{"items": ["a"', "body"),
        ("", "body"),
        ("[" * 5000, "body"),
    ],
)
async def test_what_is_no_json_is_a_422_that_names_the_place(api: Api, raw: str, param: str) -> None:
    error = told(await post(api, raw.encode()), 422)
    assert (error["code"], error["param"]) == ("invalid_json", param)


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00"])
@pytest.mark.parametrize(
    ("path", "raw", "param"),
    [
        ("/v1/encode/org/model", '{"items": [{"text": "HALF"}]}', "items[0].text"),
        ("/v1/encode/org/model", '{"items": [{"text": "a", "metadata": {"b": ["HALF"]}}]}', "items[0].metadata.b[0]"),
        ("/v1/encode/org/model", '{"items": [{"text": "a", "metadata": {"HALF": 1}}]}', "items[0].metadata"),
        ("/v1/extract/org/model", '{"items": [{"text": "a"}], "params": {"labels": ["HALF"]}}', "params.labels[0]"),
        ("/v1/score/org/model", '{"query": {"text": "HALF"}, "items": [{"text": "a"}]}', "query.text"),
        ("/v1/generate/org/model", '{"prompt": "HALF", "max_new_tokens": 1}', "prompt"),
        ("/v1/generate/org/model", '{"prompt": "HALF", "max_new_tokens": 1, "stream": true}', "prompt"),
        ("/v1/jobs", '{"operation": "encode", "model": "HALF", "items": ["a"]}', "model"),
    ],
)
async def test_half_an_emoji_is_refused_by_its_field_on_the_peers_routes(
    api: Api, path: str, raw: str, param: str, half: str
) -> None:
    headers = {"content-type": "application/json", "x-sie-sdk-version": "0.10.1"}
    answer = await api.http.post(path, content=raw.replace("HALF", half), headers=headers)
    detail = SieErrorReply.model_validate(answer.json()).detail
    assert (answer.status_code, detail.code, detail.param) == (400, "INVALID_INPUT", param)


@pytest.mark.parametrize("half", ["%ED%A0%BD", "%ED%B8%80", "%F0%9F", "%ff"])
async def test_half_an_emoji_in_the_path_is_no_models_name(api: Api, half: str) -> None:
    answer = await api.http.post(f"/v1/encode/org/mo{half}del", json={"items": [{"text": "a"}]})
    assert (answer.status_code, answer.json()["detail"]["code"]) == (404, "MODEL_NOT_FOUND")


async def test_a_whole_emoji_is_text_on_the_peers_route(api: Api, consumer: Consumer) -> None:
    raw = b'{"items": [{"text": "\\ud83d\\ude00", "metadata": {"a": "\\ud83d\\ude00"}}]}'
    headers = {"content-type": "application/json"}
    answer = await api.http.post("/v1/encode/org/model", content=raw, headers=headers)
    assert (answer.status_code, len(answer.json()["items"])) == (200, 1)


async def test_options_nested_deep_are_refused(api: Api) -> None:
    nested = (
        b'{"verb":"encode","model":"org/model","items":["a"],"options":{"prompt":' + b"[" * 900 + b"]" * 900 + b"}}"
    )
    assert told(await post(api, nested), 422)["param"] == "options.prompt"


async def test_a_proper_surrogate_pair_is_text(api: Api, consumer: Consumer) -> None:
    raw = b'{"verb":"encode","model":"org/model","items":["\\ud83d\\ude00"]}'
    assert (await post(api, raw, prefer="wait=10")).json()["status"] == "succeeded"


async def test_nul_in_a_text_is_text(api: Api, consumer: Consumer) -> None:
    job = (await api.submit("a\0b", wait=10)).json()
    assert (job["status"], job["items_failed"]) == ("succeeded", 0)


async def test_nul_in_what_a_model_gives_is_told_as_it_is(api: Api, consumer: Consumer) -> None:
    """Converters find it in files, such as PDFs, that hold it where text should be."""
    fault = {"code": "model_failed", "message": "no \0 here", "retryable": False}
    consumer.edit = lambda index, row: {**row, "text": "a\0b"} if index else {"error": fault}
    job = (await api.submit("cat", "dog", wait=10)).json()
    assert (job["status"], job["items_failed"]) == ("succeeded", 1)
    told_ = (await api.http.get(job["urls"]["result"])).json()["items"]
    assert (told_[0]["error"]["message"], told_[1]["text"]) == ("no \0 here", "a\0b")


async def test_special_token_literals_are_text_and_are_counted(api: Api, consumer: Consumer) -> None:
    job = (await api.submit("<|endoftext|>", "[CLS] [SEP] [MASK]", "</s>", "<|im_end|>", wait=10)).json()
    assert job["status"] == "succeeded"
    assert job["usage"]["tokens"] > 0


async def test_an_unknown_model_is_a_404_with_the_nearest_name(api: Api) -> None:
    error = told(await api.submit(model="org/modle"), 404)
    assert error["code"] == "model_not_found"
    assert "'org/model'" in error["message"]


@pytest.mark.parametrize("name", ["x" * 300, "../../etc/passwd", "org/mödel", "org/model:none", "org/model\0", ":"])
async def test_a_strange_model_name_is_a_404(api: Api, name: str) -> None:
    assert told(await api.submit(model=name), 404)["param"] == "model"


@pytest.mark.parametrize("key", ["", "x" * 257, "a\tb", "caf\xe9"])
async def test_a_bad_idempotency_key_is_a_422(api: Api, key: str) -> None:
    response = await api.submit(headers={"Idempotency-Key": key.encode("latin-1")})  # type: ignore[dict-item]
    assert told(response, 422)["param"] == "Idempotency-Key"


async def test_a_second_idempotency_key_is_a_422(api: Api) -> None:
    keys = [("Idempotency-Key", "a"), ("Idempotency-Key", "a")]
    assert told(await api.http.post("/v1/jobs", json=PLAIN, headers=keys), 422)["param"] == "Idempotency-Key"


@pytest.mark.parametrize("blanks", [[""], ["   "], ["\n\t"], ["", " "]])
@pytest.mark.parametrize("wait", [0, 10])
async def test_blank_texts_alone_fail_the_job_the_same_way_on_both_paths(
    api: Api, consumer: Consumer, blanks: list[str], wait: float
) -> None:
    job = (await api.submit(*blanks, wait=wait)).json()
    ended = (await api.http.get(job["urls"]["self"], params={"wait": 10})).json()
    assert (ended["status"], ended["items_failed"]) == ("failed", len(blanks))
    result = await api.http.get(job["urls"]["result"])
    assert result.status_code == 422
    assert [item["error"]["code"] for item in result.json()["items"]] == ["empty_text"] * len(blanks)
    assert (await api.submit("cat", wait=10)).json()["status"] == "succeeded"


async def test_blank_items_keep_their_places_and_their_neighbours_run(api: Api, consumer: Consumer) -> None:
    items = [{"id": i, "text": t} for i, t in zip("abcde", ["cat", "", "dog", " ", "fish"], strict=True)]
    job = (await api.submit(*items, wait=10)).json()
    assert (job["status"], job["items_failed"]) == ("succeeded", 2)
    found = job["result"]["items"]
    assert [item["id"] for item in found] == list("abcde")
    assert [item["error"]["code"] for item in found if "error" in item] == ["empty_text", "empty_text"]
    for place, text in ((0, "cat"), (2, "dog"), (4, "fish")):
        alone = (await api.submit(text, wait=10)).json()["result"]["items"][0]
        assert found[place]["dense"] == alone["dense"]


async def test_a_text_over_the_models_length_is_an_item_error_with_its_count_if_it_may_not_be_cut(
    api: Api, consumer: Consumer
) -> None:
    job = (await api.submit("cat", "x" * 1000, wait=10, options={"truncate": False})).json()
    assert (job["status"], job["items_failed"]) == ("succeeded", 1)
    error = job["result"]["items"][1]["error"]
    assert error["code"] == "text_too_long"
    assert "252 tokens" in error["message"]
    assert (await api.submit("x" * 1000, wait=10)).json()["result"]["items"][0]["tokens"] == 64


async def test_a_lost_item_leaves_a_reply_that_strict_json_reads(api: Api, consumer: Consumer) -> None:
    error = {"code": "not_finite", "message": "The model gave NaN.", "retryable": False}
    consumer.edit = lambda index, row: {"error": error} if index == 1 else row
    response = await api.submit("a", "b", "c", wait=10)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    job = json.loads(response.text, parse_constant=refuse)
    assert [("error" in item) for item in job["result"]["items"]] == [False, True, False]


async def test_no_text_of_a_caller_comes_back_in_an_error_or_goes_to_the_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "the secret of the caller"
    for fields in (
        {"items": [[secret]]},
        {"items": [{"text": secret, "id": [secret]}]},
        {"options": {"prompt": [secret]}},
    ):
        assert secret not in (await api.http.post("/v1/jobs", json={**PLAIN, **fields})).text
    assert secret not in (await post(api, b'{"items": ["' + secret.encode() + b'", NaN]}')).text
    assert secret not in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/jobs/no-id", 404),
        ("GET", "/v1/jobs/0199c0de-0000-7000-8000-000000000000", 404),
        ("GET", "/v1/jobs/0199c0de-0000-7000-8000-000000000000/result", 404),
        ("GET", "/v1/jobs/0199c0de-0000-7000-8000-000000000000/events", 404),
        ("POST", "/v1/jobs/0199c0de-0000-7000-8000-000000000000/cancel", 404),
        ("POST", "/v1/jobs/0199c0de-0000-7000-8000-000000000000/retry", 404),
        ("GET", "/v1/jobs?limit=0", 422),
        ("GET", "/v1/jobs?limit=1000", 422),
        ("GET", "/v1/jobs?cursor=nonsense", 422),
        ("GET", "/v1/jobs?statsu=failed", 422),
        ("GET", "/v1/jobs?status=faild", 422),
        ("GET", "/v1/jobs/0199c0de-0000-7000-8000-000000000000?wait=x", 422),
    ],
)
async def test_every_error_has_the_envelope(api: Api, method: str, path: str, status: int) -> None:
    told(await api.http.request(method, path), status)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("DELETE", "/v1/jobs", 405), ("GET", "/v1/models/org/none", 404)],
)
async def test_what_openais_clients_may_ask_for_has_their_type_of_error_too(
    api: Api, method: str, path: str, status: int
) -> None:
    response = await api.http.request(method, path)
    assert response.status_code == status
    assert OpenAIErrorReply.model_validate(response.json()).error.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "hint"), [("/v1/jobs?statsu=failed", "'status'"), ("/v1/jobs?status=faild", "'failed'")]
)
async def test_a_near_miss_in_a_filter_gets_the_right_name(api: Api, path: str, hint: str) -> None:
    assert f"did you mean {hint}?" in told(await api.http.get(path), 422)["message"]
