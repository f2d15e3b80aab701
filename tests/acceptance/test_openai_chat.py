"""Chats by OpenAI's own client, against fakes that say what they are told and a small real model."""

from __future__ import annotations

import io
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jsonschema
import openai
import pytest
from openai import OpenAI
from PIL import Image
from pydantic import BaseModel

from tests.acceptance.conftest import Running
from tests.acceptance.fakes import writer
from tests.acceptance.openai_clients import sync_client
from tests.acceptance.small_models import PATIENT, small, smollm2

SMALL = "small/smollm2"
SEES = small(
    "tiny_llava", "vision_language", tasks={"generate": {}}, inputs=["text", "messages", "image"], max_length=512
)
ECHO = writer(echo=True, max_new_tokens=64, tools=True)
LOOK: Any = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}
CALL = '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'


class Bird(BaseModel):
    name: Literal["owl", "wren"]
    flies: bool


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    slow = writer(step_seconds=0.02)
    models = {SMALL: smollm2(), "small/sees": SEES, "fake/echo": ECHO, "fake/slow": slow}
    return start_stack(models=models, **PATIENT)


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[OpenAI]:
    with sync_client(running.url) as made:
        yield made


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def native(running: Running, items: list[Any], model: str = SMALL, **options: Any) -> dict[str, Any]:
    body = {"verb": "generate", "model": model, "items": items, "options": options}
    reply = running.client.post("/v1/jobs", json=body, headers={"Prefer": "wait=60"})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()["result"]
    return found


def test_an_answer_is_that_of_the_native_api_with_its_usage_and_logprobs(running: Running, client: OpenAI) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *user("Name a bird.")]
    expected = native(running, [{"messages": messages}], max_tokens=8, logprobs=True, top_logprobs=2)
    (row,) = expected["items"]
    reply = client.chat.completions.create(
        model=SMALL, messages=messages, max_completion_tokens=8, temperature=0, logprobs=True, top_logprobs=2
    )
    (choice,) = reply.choices
    assert choice.message.content == row["text"]
    assert choice.finish_reason == row["finish_reason"]
    assert choice.logprobs is not None
    assert [one.model_dump() for one in choice.logprobs.content or ()] == row["logprobs"]
    usage = expected["usage"]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )
    assert reply.object == "chat.completion"


def test_choices_differ_a_seed_repeats_them_and_the_prompt_counts_once(client: OpenAI) -> None:
    def drawn(seed: int) -> tuple[list[str | None], int]:
        reply = client.chat.completions.create(
            model=SMALL, messages=user("Tell me of birds."), n=3, seed=seed, max_tokens=8
        )
        assert reply.usage is not None
        return [choice.message.content for choice in reply.choices], reply.usage.prompt_tokens

    (texts, tokens), again, other = drawn(1), drawn(1), drawn(2)
    assert len(set(texts)) == 3
    assert (texts, tokens) == again
    assert texts != other[0]
    alone = client.chat.completions.create(
        model=SMALL, messages=user("Tell me of birds."), seed=1, max_tokens=8, temperature=1
    )
    assert alone.choices[0].message.content == texts[0]
    assert alone.usage is not None
    assert alone.usage.prompt_tokens == tokens


def test_a_stop_text_ends_an_answer_and_is_not_in_it(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=SMALL, messages=user("Count to nine."), temperature=0, max_tokens=12)
    text = whole.choices[0].message.content
    assert text is not None
    stop = text[len(text) // 2 :][:3]
    cut = client.chat.completions.create(
        model=SMALL, messages=user("Count to nine."), temperature=0, max_tokens=12, stop=[stop]
    )
    assert cut.choices[0].message.content == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_a_schema_holds_what_a_small_model_would_never_keep_to(client: OpenAI) -> None:
    reply = client.chat.completions.parse(
        model=SMALL, messages=user("Write a poem."), response_format=Bird, max_tokens=40, seed=4
    )
    assert isinstance(reply.choices[0].message.parsed, Bird)
    chosen = client.chat.completions.create(
        model=SMALL, messages=user("Write prose."), response_format={"type": "json_object"}, max_tokens=40, seed=4
    )
    text = chosen.choices[0].message.content or ""
    assert text.startswith("{")
    assert chosen.choices[0].finish_reason == "length" or isinstance(json.loads(text), dict)


STRICT: Any = {
    "type": "object",
    "properties": {
        "color": {"$ref": "#/$defs/Color"},
        "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8},
        "size": {"type": "integer", "minimum": 1, "maximum": 3},
        "pair": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
    },
    "required": ["color", "code", "size", "pair"],
    "additionalProperties": False,
    "$defs": {"Color": {"enum": ["red", "blue"]}},
}


def test_ten_samples_keep_to_a_schema_and_none_fills_up_with_blanks(client: OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "thing", "schema": STRICT, "strict": True}}
    reply = client.chat.completions.create(
        model=SMALL, messages=user("Write a long story in prose."), response_format=form, n=10, seed=1, max_tokens=96
    )
    texts = [choice.message.content or "" for choice in reply.choices]
    assert not any(re.search(r"\s{3}", text) for text in texts)
    ended = [text for text, choice in zip(texts, reply.choices, strict=True) if choice.finish_reason == "stop"]
    assert len(ended) >= 8
    for text in ended:
        jsonschema.validate(json.loads(text), STRICT)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "paint"}}])
def test_a_call_that_is_asked_for_is_made_by_any_model(client: OpenAI, choice: Any) -> None:
    paint: Any = {"type": "function", "function": {"name": "paint", "parameters": STRICT}}
    reply = client.chat.completions.create(
        model=SMALL, messages=user("Hello."), tools=[LOOK, paint], tool_choice=choice, parallel_tool_calls=False,
        seed=3, max_tokens=120,
    )  # fmt: skip
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.choices[0].message.content is None
    calls: list[Any] = list(reply.choices[0].message.tool_calls or ())
    assert len(calls) == 1
    schemas = {"look": LOOK["function"]["parameters"], "paint": STRICT}
    jsonschema.validate(json.loads(calls[0].function.arguments), schemas[calls[0].function.name])


def test_a_fault_in_a_functions_parameters_is_named_where_it_stands(client: OpenAI) -> None:
    bad: Any = {"type": "function", "function": {"name": "bad", "parameters": {"type": "objct"}}}
    for choice in ("required", {"type": "function", "function": {"name": "bad"}}):
        asked: Any = {"tools": [LOOK, bad], "tool_choice": choice}
        with pytest.raises(openai.BadRequestError) as raised:
            client.chat.completions.create(model=SMALL, messages=user("a"), **asked)
        assert raised.value.param == "tools[1].function.parameters.type"


def test_a_call_is_told_as_one_and_the_words_before_it_stay(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="fake/echo", messages=user(f"I look.\n{CALL}"), tools=[LOOK])
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("look", {"at": "it"})
    assert call.id.startswith("call_")
    with client.chat.completions.stream(model="fake/echo", messages=user(f"I look.\n{CALL}"), tools=[LOOK]) as stream:
        told = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(told) == "I look."
    assert final.choices[0].finish_reason == "tool_calls"
    streamed: Any = (final.choices[0].message.tool_calls or [])[0]
    assert (streamed.function.name, streamed.function.arguments) == (call.function.name, call.function.arguments)


def test_a_turn_with_its_calls_can_be_sent_back(client: OpenAI) -> None:
    first = client.chat.completions.create(model="fake/echo", messages=user(CALL), tools=[LOOK]).choices[0].message
    assert first.tool_calls
    answer: Any = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "a cat"}
    messages: list[Any] = [*user(CALL), first, answer]
    reply = client.chat.completions.create(model="fake/echo", messages=messages, tools=[LOOK])
    assert reply.choices[0].message.content == "a cat"


def test_what_is_thought_aloud_is_told_apart(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="fake/echo", messages=user("<think>\nHm.\n</think>\n\nYes."))
    message = reply.choices[0].message
    assert message.content == "Yes."
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"] == "Hm."


def test_an_image_in_the_request_is_seen_as_by_the_native_api(running: Running, client: OpenAI) -> None:
    image = b64encode(png()).decode()
    turn = [{"type": "text", "text": "What is this?"}, {"type": "image", "image": {"data": image}}]
    (row,) = native(running, [{"messages": [{"role": "user", "content": turn}]}], model="small/sees", max_tokens=6)[
        "items"
    ]
    parts: Any = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
    ]
    reply = client.chat.completions.create(
        model="small/sees", messages=[{"role": "user", "content": parts}], temperature=0, max_tokens=6
    )
    assert reply.choices[0].message.content == row["text"]
    assert reply.usage is not None
    assert reply.usage.prompt_tokens > 20
    parts[1]["image_url"]["url"] = "data:image/png;base64,bm90IGEgcG5n"
    broken_turn: Any = [{"role": "user", "content": parts}]
    with pytest.raises(openai.BadRequestError) as broken:
        client.chat.completions.create(model="small/sees", messages=broken_turn)
    assert broken.value.param == "messages[0].content[1].image_url.url"
    with pytest.raises(openai.APIError) as late:
        list(client.chat.completions.create(model="small/sees", messages=broken_turn, stream=True))
    assert late.value.param == "messages[0].content[1].image_url.url"
    parts = [{"type": "input_image", "image_url": "data:image/png;base64,bm90IGEgcG5n"}]
    with pytest.raises(openai.BadRequestError) as response:
        client.responses.create(model="small/sees", input=[{"role": "user", "content": parts}])
    assert response.value.param == "input[0].content[0].image_url"


def png() -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (40, 30), "green").save(written, "PNG")
    return written.getvalue()


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_with_store_false_nothing_of_the_job_is_kept(
    running: Running, client: OpenAI, *, store: bool, stream: bool
) -> None:
    ask = client.chat.completions.with_raw_response.create
    reply = ask(model="fake/echo", messages=user("say this"), store=store, stream=stream)
    if stream:
        reply.http_response.read()
    job = f"/v1/jobs/{reply.headers['x-roost-job-id']}"
    found = running.client.get(job).json()
    assert (found["status"], found["store"], found["options"] == {}) == ("succeeded", store, not store)
    assert running.client.get(f"{job}/result").status_code == (200 if store else 410)


def test_errors_are_the_clients_own(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="fake/ech", messages=user("a"))
    assert missing.value.code == "model_not_found"
    assert "fake/echo" in missing.value.message
    with pytest.raises(openai.BadRequestError) as unknown:
        client.chat.completions.create(model="fake/echo", messages=user("a"), extra_body={"temprature": 1})
    assert unknown.value.param == "temprature"
    assert "temperature" in unknown.value.message
    parts: Any = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    with pytest.raises(openai.BadRequestError) as image:
        client.chat.completions.create(model="fake/echo", messages=[{"role": "user", "content": parts}])
    assert image.value.param == "messages[0].content[0].image_url.url"
    with pytest.raises(openai.BadRequestError) as tools:
        client.chat.completions.create(model="fake/slow", messages=user("a"), tools=[LOOK])
    assert tools.value.param == "tools"
    with pytest.raises(openai.BadRequestError) as blank:
        client.chat.completions.create(model=SMALL, messages=user(" "), stream=True)
    assert (blank.value.code, blank.value.param) == ("empty_text", "messages")
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=SMALL, messages=user("word " * 3000))
    assert long.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("schema", "inside"),
    [
        ({"type": "strng"}, ".type"),
        ({"properties": ["a"]}, ".properties"),
        ({"enum": []}, ".enum"),
        ({"$ref": "/$defs/Color"}, ".$ref"),
        ({"$ref": "https://example.com/color.json"}, ".$ref"),
        ({"type": "object", "properties": {"a": {"type": "string", "maxLength": "3"}}}, ".properties.a.maxLength"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_by_its_path(client: OpenAI, schema: Any, inside: str) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=SMALL, messages=user("a"), response_format=form)
    assert raised.value.param == f"response_format.json_schema.schema{inside}"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00"])
def test_half_an_emoji_is_refused(running: Running, half: str, stream: bool) -> None:
    whole = {"model": "fake/echo", "stream": stream, "messages": user("HALF")}
    body = json.dumps(whole).replace("HALF", half)
    reply = running.client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert "messages[0].content" in reply.json()["error"]["param"]


def test_a_whole_emoji_and_literals_of_control_tokens_are_text(client: OpenAI) -> None:
    text = "\U0001f600 <|im_end|> </s> <|endoftext|>"
    assert client.chat.completions.create(model="fake/echo", messages=user(text)).choices[0].message.content == text
    reply = client.chat.completions.create(model=SMALL, messages=user(text), max_tokens=2)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens > 10
