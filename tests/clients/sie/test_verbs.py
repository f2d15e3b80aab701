"""The peer's own client, sync and async: each verb gives what the native API gives, and each error its class."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import (
    IncompleteBatchError,
    InputTooLongError,
    ModelLoadFailedError,
    RequestError,
)

from tests.clients.sie import native

FILES = Path(__file__).parents[2] / "files"
TEXTS = ["The owl waits.", "A ship, a boat.", "A raft!"]
BGE = "small/bge-m3"

SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[SIEClient]:
    with SIEClient(url) as made:
        yield made


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, url: str, client: SIEClient) -> Call:
    """A method of the client by its name, with its arguments."""
    if request.param == "sync":
        return lambda name, *args, **options: getattr(client, name)(*args, **options)

    async def once(name: str, *args: Any, **options: Any) -> Any:
        async with SIEAsyncClient(url) as made:
            return await getattr(made, name)(*args, **options)

    return lambda name, *args, **options: asyncio.run(once(name, *args, **options))


def same(ours: Any, theirs: Any) -> None:
    assert ours.dtype == theirs.dtype
    assert np.array_equal(ours, theirs)


# encode


def test_one_item_gives_one_result_and_a_list_gives_a_list(call: Call, url: str) -> None:
    want = native.result(url, "encode", "fake/vectors", TEXTS)["items"]
    one = call("encode", "fake/vectors", {"text": TEXTS[0]})
    same(one["dense"], want[0]["dense"])
    assert one["timing"]["total_ms"] > 0
    many = call("encode", "fake/vectors", [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)])
    assert [item["id"] for item in many] == ["0", "1", "2"]
    for item, other in zip(many, want, strict=True):
        same(item["dense"], other["dense"])


def test_all_outputs_of_a_model_come_as_arrays(call: Call, url: str) -> None:
    outputs = ["dense", "sparse", "multivector"]
    want = native.result(url, "encode", BGE, TEXTS, options={"output_types": outputs})["items"]
    got = call("encode", BGE, [{"text": text} for text in TEXTS], output_types=outputs)
    for item, other in zip(got, want, strict=True):
        same(item["dense"], other["dense"])
        same(item["sparse"]["indices"], other["sparse"]["indices"])
        same(item["sparse"]["values"], other["sparse"]["values"])
        same(item["multivector"], other["multivector"])


@pytest.mark.parametrize(
    ("dtype", "ours"),
    [
        ("float32", "float32"),
        ("float16", "float16"),
        ("int8", "int8"),
        ("uint8", "uint8"),
        ("binary", "ubinary"),
        ("ubinary", "ubinary"),
    ],
)
def test_dense_vectors_come_in_every_type(call: Call, url: str, dtype: str, ours: str) -> None:
    want = native.result(url, "encode", BGE, TEXTS[:1], options={"output_dtype": ours})["items"][0]["dense"]
    same(call("encode", BGE, {"text": TEXTS[0]}, output_dtype=dtype)["dense"], want)


@pytest.mark.parametrize(
    ("output", "dtype"), [("multivector", "float16"), ("multivector", "int8"), ("sparse", "float16")]
)
def test_other_vectors_come_in_their_types(call: Call, url: str, output: str, dtype: str) -> None:
    options = {"output_types": [output], "output_dtype": dtype}
    want = native.result(url, "encode", BGE, TEXTS[:1], options=options)["items"][0][output]
    got = call("encode", BGE, {"text": TEXTS[0]}, output_types=[output], output_dtype=dtype)[output]
    if output == "sparse":
        same(got["values"], want["values"])
    else:
        same(got, want)


def test_an_image_is_encoded(call: Call, url: str, tmp_path: Path) -> None:
    place = tmp_path / "red.png"
    Image.new("RGB", (64, 64), "red").save(place)
    data = place.read_bytes()
    want = native.result(url, "encode", "small/clip", [{"images": [{"data": data}]}])["items"][0]["dense"]
    same(call("encode", "small/clip", {"images": [data]})["dense"], want)
    assert call("encode", "small/clip", {"images": [place]})["dense"].shape == (48,)


@pytest.mark.parametrize(
    ("model", "said"), [("small/prompted", {"is_query": True}), (BGE, {"instruction": "Find what floats: "})]
)
def test_the_side_of_a_search_and_an_instruction_are_told(call: Call, url: str, model: str, said: Any) -> None:
    want = native.result(url, "encode", model, TEXTS[:1], options=said)["items"][0]["dense"]
    same(call("encode", model, {"text": TEXTS[0]}, **said)["dense"], want)
    assert not np.array_equal(want, call("encode", model, {"text": TEXTS[0]})["dense"])


def test_vectors_are_not_normalised_where_that_is_asked(call: Call, url: str) -> None:
    want = native.result(url, "encode", BGE, TEXTS[:1], options={"normalize": False})["items"][0]["dense"]
    same(call("encode", BGE, {"text": TEXTS[0]}, options={"normalize": False})["dense"], want)


def test_of_a_batch_with_a_bad_item_the_others_are_kept(call: Call, url: str) -> None:
    items = [{"id": "a", "text": TEXTS[0]}, {"id": "b", "text": "  "}, {"id": "c", "text": TEXTS[1]}]
    with pytest.raises(IncompleteBatchError) as caught:
        call("encode", "fake/vectors", items)
    assert caught.value.missing_ids == ["b"]
    want = native.result(url, "encode", "fake/vectors", TEXTS[:2])["items"]
    assert [item["id"] for item in caught.value.results] == ["a", "c"]
    for item, other in zip(caught.value.results, want, strict=True):
        same(item["dense"], other["dense"])


def test_a_profile_is_named_in_the_path_or_in_the_options(call: Call) -> None:
    by_path = call("encode", f"{BGE}:words", {"text": TEXTS[0]})
    by_option = call("encode", BGE, {"text": TEXTS[0]}, options={"profile": "words"})
    assert "dense" not in by_path
    same(by_path["multivector"], by_option["multivector"])


def test_a_cold_model_is_waited_for(client: SIEClient) -> None:
    assert client.encode("fake/cold", {"text": TEXTS[0]})["dense"].shape == (8,)
    assert client.last_retry_count == 0


def test_a_result_names_its_model(client: SIEClient) -> None:
    assert client.encode("fake/vectors", {"text": TEXTS[0]})["model"] == "fake/vectors"


# score


def test_scores_come_best_first_with_their_items(call: Call, url: str) -> None:
    items = [{"id": "1", "text": TEXTS[1]}, {"text": TEXTS[2]}, {"id": "3", "text": TEXTS[0]}]
    want = native.result(url, "score", BGE, items, query=TEXTS[0])
    got = call("score", BGE, {"id": "q", "text": TEXTS[0]}, items)
    assert got["query_id"] == "q"
    assert got["model"] == BGE
    names = ["1", "item-1", "3"]
    assert got["scores"] == [
        {"item_id": names[one["index"]], "score": one["score"], "rank": one["rank"]} for one in want["scores"]
    ]


def test_precomputed_vectors_are_scored(call: Call) -> None:
    encoded = call("encode", BGE, [{"text": text} for text in TEXTS], output_types=["multivector"])
    query, *items = ({"multivector": item["multivector"]} for item in encoded)
    by_vectors = call("score", BGE, query, items, options={"score_mode": "colbert"})
    by_texts = call(
        "score", BGE, {"text": TEXTS[0]}, [{"text": t} for t in TEXTS[1:]], options={"score_mode": "colbert"}
    )
    assert [one["item_id"] for one in by_vectors["scores"]] == [one["item_id"] for one in by_texts["scores"]]
    for ours, other in zip(by_vectors["scores"], by_texts["scores"], strict=True):
        assert ours["score"] == pytest.approx(other["score"], abs=1e-4)


# extract


def test_entities_are_found_by_labels_and_mirrored_in_data(call: Call, url: str) -> None:
    model, text, labels = "fastino/gliner2-large-v1", "Ada Lovelace wrote to Charles Babbage.", ["person", "place"]
    want = native.result(url, "extract", model, [text], labels=labels, options={"threshold": 0.1})["items"][0]
    got = call("extract", model, {"id": "x", "text": text}, labels=labels, options={"threshold": 0.1})
    assert got["id"] == "x"
    assert want["entities"]
    assert [{k: v for k, v in one.items() if k != "bbox"} for one in got["entities"]] == want["entities"]
    assert got["data"] == want["entities"]


def test_a_schema_is_filled_in(call: Call, url: str) -> None:
    schema = {"type": "object", "properties": {"who": {"type": "string"}, "when": {"type": "string"}}}
    model, text = "fastino/gliner2-large-v1", "Ada Lovelace wrote in 1843."
    want = native.result(url, "extract", model, [text], output_schema=schema)["items"][0]["data"]
    assert call("extract", model, {"text": text}, output_schema=schema)["data"] == want


def test_objects_are_found_in_an_image_and_mirrored_in_data(call: Call, url: str, tmp_path: Path) -> None:
    place = tmp_path / "photo.jpg"
    Image.linear_gradient("L").convert("RGB").save(place, quality=95)
    model = "IDEA-Research/grounding-dino-tiny"
    item = {"images": [{"data": place.read_bytes()}]}
    options = {"score_threshold": 0.05}
    want = native.result(url, "extract", model, [item], labels=["a cat"], options=options)["items"][0]["objects"]
    got = call("extract", model, {"images": [place.read_bytes()]}, labels=["a cat"], options=options)
    assert want
    assert got["objects"] == want
    assert got["data"] == want


def test_a_document_becomes_markdown(call: Call, tmp_path: Path) -> None:
    place = tmp_path / "page.md"
    place.write_text("# Owls\n\nThey wait.\n")
    got = call("extract", "docling", {"id": "d", "document": place}, options={"profile": "default"})
    assert "# Owls" in got["data"]["markdown"]
    assert {"text", "markdown", "document"} <= got["data"].keys()


def test_speech_is_written_down(call: Call, url: str) -> None:
    data = (FILES / "audio" / "ceiling.flac").read_bytes()
    want = native.result(url, "extract", "small/whisper", [{"audio": {"data": data}}])["items"][0]["data"]
    assert call("extract", "small/whisper", {"audio": data})["data"] == want


def test_a_bad_item_carries_its_error_and_its_neighbours_run(call: Call) -> None:
    good, bad = {"id": "a", "text": "one page"}, {"id": "b", "text": "page\f" * 100}
    found = call("extract", "fake/parser", [good, bad])
    assert "error" not in found[0]
    assert found[0]["data"]
    assert found[1]["error"]["code"] == "INPUT_TOO_LONG"
    assert found[1]["error"]["message"]


# generate


def test_a_text_goes_on_as_in_the_native_api(call: Call, url: str) -> None:
    options = {"max_tokens": 9, "raw": True}
    want = native.result(url, "generate", "fake/writer", ["Once upon"], options=options)["items"][0]
    got = call("generate", "fake/writer", "Once upon", max_new_tokens=9, temperature=0, top_p=1)
    assert (got["text"], got["finish_reason"]) == (want["text"], want["finish_reason"])
    assert got["usage"] == {"prompt_tokens": 2, "completion_tokens": 9, "total_tokens": 11}


def test_what_only_routes_a_generation_is_taken(call: Call) -> None:
    plain = call("generate", "fake/writer", "Once", max_new_tokens=3)
    routed = call("generate", "fake/writer", "Once", max_new_tokens=3, routing_key="r", prompt_cache_key="p",
                  safety_identifier="s", stop=["never"], seed=1)  # fmt: skip
    assert routed["text"] == plain["text"]


@pytest.mark.parametrize(
    "grammar",
    [
        {"json_schema": SCHEMA, "label": "number", "strict": True},
        {"regex": r'\{"n": [0-9]\}'},
        {"ebnf": 'root ::= "{\\"n\\": " digit "}"\ndigit ::= [0-9]'},
    ],
    ids=["schema", "regex", "ebnf"],
)
def test_an_answer_keeps_to_a_grammar(client: SIEClient, grammar: dict[str, Any]) -> None:
    got = client.generate("small/writer", "A number:", max_new_tokens=30, grammar=grammar)
    assert isinstance(json.loads(got["text"])["n"], int)


def test_a_stream_tells_the_same_text_in_pieces(client: SIEClient) -> None:
    whole = client.generate("fake/writer", "Once upon", max_new_tokens=9)
    chunks = list(client.stream_generate("fake/writer", "Once upon", max_new_tokens=9))
    assert "".join(chunk["text_delta"] for chunk in chunks) == whole["text"]
    assert [chunk["seq"] for chunk in chunks] == list(range(len(chunks)))
    assert [chunk["done"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len({chunk["request_id"] for chunk in chunks}) == 1
    assert chunks[-1]["finish_reason"] == whole["finish_reason"]
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-1]["ttft_ms"] >= 0


def test_a_stream_is_read_asynchronously(url: str) -> None:
    async def read() -> str:
        async with SIEAsyncClient(url) as made:
            stream = made.stream_generate("fake/writer", "Once upon", max_new_tokens=9)
            return "".join([chunk["text_delta"] async for chunk in stream])

    with SIEClient(url) as client:
        assert asyncio.run(read()) == client.generate("fake/writer", "Once upon", max_new_tokens=9)["text"]


# errors


def test_a_text_that_is_too_long_has_its_own_class(call: Call) -> None:
    with pytest.raises(InputTooLongError):
        call("extract", "fake/parser", {"text": "page\f" * 100})


def test_a_model_that_does_not_load_is_told_at_once(call: Call) -> None:
    with pytest.raises(ModelLoadFailedError) as caught:
        call("encode", "small/broken", {"text": TEXTS[0]})
    assert caught.value.permanent
    assert caught.value.attempts >= 1
    assert caught.value.error_class


def test_an_unknown_model_is_refused_with_near_names(call: Call) -> None:
    with pytest.raises(RequestError, match="Did you mean 'fake/vectors'") as caught:
        call("encode", "fake/vectrs", {"text": TEXTS[0]})
    assert (caught.value.code, caught.value.status_code) == ("MODEL_NOT_FOUND", 404)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"normalise": True}, "params.options.normalise"),
        ({"muvera": True}, "params.options.muvera"),
        ({"pooling": "cls"}, "params.options.pooling"),
        ({"profile": "sparse", "x": 1}, "params.options.x"),
    ],
)
def test_an_option_that_is_not_taken_is_named(call: Call, options: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        call("encode", "fake/vectors", {"text": TEXTS[0]}, options=options)
    assert (caught.value.code, caught.value.status_code) == ("INVALID_INPUT", 400)
    assert caught.value.param == param


def test_profiles_that_differ_are_refused(call: Call) -> None:
    with pytest.raises(RequestError, match="name one") as caught:
        call("encode", f"{BGE}:words", {"text": TEXTS[0]}, options={"profile": "dense"})
    assert caught.value.param == "params.options.profile"


def test_a_field_of_generate_that_is_not_there_is_named(client: SIEClient) -> None:
    with pytest.raises(RequestError) as caught:
        list(client.stream_generate("fake/writer", "Once", max_new_tokens=3, extra_body={"temperatur": 1}))
    assert (caught.value.code, caught.value.param) == ("unsupported_field", "temperatur")
