"""Bodies of chats, as the jobs that they ask for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from api.compat.failures import renamed
from api.compat.openai.chat import to_job
from api.compat.openai.chat_request import chat_of, reread
from catalog.errors import RoostError
from catalog.grammar import check_grammar
from catalog.options.generate import Grammar
from tasks.errors import InvalidRequest
from tasks.request import parse_request

USER = {"role": "user", "content": "Hello"}
PART = "messages[0].content[0]"
PNG = "data:image/png;base64,iVBORw0KGgo="


def asked(**fields: Any) -> dict[str, Any]:
    """The job of a chat, which the native API has to take as it is."""
    raw = dict(to_job({"model": "m", "messages": [USER], **fields}).raw)
    parse_request(raw, 1000)
    return raw


def options(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = asked(**fields)["options"]
    return found


def function(name: str = "look", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def part(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [fields]}]}


def call(arguments: str) -> dict[str, Any]:
    made = {"id": "1", "type": "function", "function": {"name": "a", "arguments": arguments}}
    return {"messages": [{"role": "assistant", "tool_calls": [made]}]}


def schema(**fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": fields}}


def test_a_plain_chat_is_one_item_that_is_sampled() -> None:
    assert asked() == {
        "verb": "generate", "model": "m", "items": [{"messages": [USER]}], "options": {"temperature": 1.0},
    }  # fmt: skip


def test_fields_that_choose_tokens_are_options() -> None:
    found = options(
        max_completion_tokens=5, temperature=0, top_p=1, seed=3, stop=["a"], frequency_penalty=1, presence_penalty=-1,
        logit_bias={"5": -100}, logprobs=True, top_logprobs=2, top_k=4, min_tokens=1, repetition_penalty=1.1,
    )  # fmt: skip
    assert found == {
        "max_tokens": 5, "temperature": 0.0, "top_p": 1.0, "seed": 3, "stop": ["a"], "frequency_penalty": 1.0,
        "presence_penalty": -1.0, "logit_bias": {"5": -100.0}, "logprobs": True, "top_logprobs": 2, "top_k": 4,
        "min_tokens": 1, "repetition_penalty": 1.1,
    }  # fmt: skip


def test_what_the_peers_client_sends_is_taken() -> None:
    found = options(max_tokens=5, temperature=0, tools=[], response_format={"type": "json_object"})
    assert found == {"max_tokens": 5, "temperature": 0.0, "grammar": {"json_schema": {"type": "object"}}}


def test_what_means_nothing_here_is_taken_and_left_out() -> None:
    fields = {
        "user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "prompt_cache_key": "k",
        "prompt_cache_retention": "24h", "safety_identifier": "s", "modalities": ["text"], "stream_options": None,
        "verbosity": "medium", "parallel_tool_calls": True,
    }  # fmt: skip
    assert options(**fields) == {"temperature": 1.0}


@pytest.mark.parametrize("start", ["", "items[0]."])
@pytest.mark.parametrize("field", ["", ".data", ".format", ".url"])
def test_a_fault_of_an_image_is_named_as_the_caller_wrote_it(start: str, field: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": PNG}}]
    body = {"model": "m", "messages": [USER, {"role": "user", "content": parts}]}
    found = renamed(InvalidRequest("", param=f"{start}messages[1].content[1].image{field}"), to_job(body).names)
    assert found.param == "messages[1].content[1].image_url.url"


@pytest.mark.parametrize("url", ["https://a.b/c.png?x=1", "HTTPS://a.b/", "http://a.b/"])
def test_an_image_may_be_named_by_its_url(url: str) -> None:
    parts = [{"type": "image_url", "image_url": {"url": url, "detail": "high"}}]
    (item,) = asked(messages=[{"role": "user", "content": parts}])["items"]
    assert item["messages"][0]["content"] == [{"type": "image", "image": {"url": url}}]


def test_each_choice_is_an_item() -> None:
    found = asked(n=3)["items"]
    assert found == [{"messages": [USER]}] * 3


def test_a_conversation_with_tools_and_images_is_read_as_it_is() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}
    found = asked(
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "boss"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}]},
            {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "reasoning_content": "Hm"},
        ]
    )["items"][0]["messages"]
    assert found == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "name": "boss"},
        {"role": "user", "content": [{"type": "image", "image": {"data": "iVBORw0KGgo=", "format": "png"}}]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"at": "it"}}}],
        },
        {"role": "tool", "content": "a cat", "tool_call_id": "c1"},
        {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
    ]


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "high"}, True),
    ],
)
def test_thinking_is_asked_for_in_two_ways(fields: dict[str, Any], thinking: bool) -> None:
    assert options(**fields)["thinking"] is thinking


class Bird(BaseModel):
    name: str
    legs: int


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_is_a_grammar_whether_it_is_strict_or_not(strict: bool | None) -> None:
    schema = Bird.model_json_schema()
    form = {"type": "json_schema", "json_schema": {"name": "bird", "schema": schema, "strict": strict}}
    assert options(response_format=form)["grammar"] == {"json_schema": schema}
    assert "grammar" not in options(response_format={"type": "text"})


@pytest.mark.parametrize("anything", [{}, True])
def test_a_schema_of_anything_is_one(anything: Any) -> None:
    grammar = options(**schema(name="x", schema=anything))["grammar"]
    assert grammar == {"json_schema": anything}
    check_grammar(Grammar(**grammar))


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"items": found}
    return found


@pytest.mark.parametrize("large", [{"enum": ["x" * 5_000_000]}, nested(300)])
def test_a_schema_beyond_the_limits_is_refused(large: Any) -> None:
    with pytest.raises(RoostError, match=r"must (take at most|be nested at most)") as raised:
        asked(**schema(name="x", schema=large))
    assert raised.value.param == "response_format"


def test_functions_go_to_the_template_and_are_left_out_where_none_is_to_be_called() -> None:
    look = function(description="Looks", parameters={"type": "object"}, strict=True)
    found = options(tools=[look, function("go")])
    assert found["tools"] == [function(description="Looks", parameters={"type": "object"}), function("go")]
    assert options(tools=[look], tool_choice="none") == {"temperature": 1.0}


def test_a_call_that_is_asked_for_is_locked() -> None:
    recursive = {"type": "object", "properties": {"next": {"$ref": "#"}, "bird": {"$ref": "#/$defs/Bird"}},
                 "required": ["bird"], "$defs": {"Bird": Bird.model_json_schema()}}  # fmt: skip
    tools = [function(parameters=recursive), function("go")]
    one = options(tools=tools, tool_choice=function("look"))
    assert one["grammar"] == {"json_schema": recursive}
    several = options(tools=tools, tool_choice="required")["grammar"]
    check_grammar(Grammar(**several))
    assert (several["json_schema"]["minItems"], several["json_schema"]["maxItems"]) == (1, 128)
    assert options(tools=tools, tool_choice="required", parallel_tool_calls=False)["grammar"]["json_schema"][
        "maxItems"
    ] == 1  # fmt: skip
    check_grammar(Grammar(**options(tools=tools[1:], tool_choice="required")["grammar"]))


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"messages": []}, "messages", "at least 1"),
        ({"mesages": []}, "mesages", "did you mean 'messages'?"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "'developer'"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "a text or a list of parts"),
        (part(type="image", image="x"), PART, "'image_url'"),
        (part(type="input_audio", input_audio={}), f"{PART}.type", "sound"),
        (part(type="file", file={}), f"{PART}.type", "files"),
        (part(type="image_url", image_url={"url": "ftp://a.b/c.png"}), f"{PART}.image_url.url", "can be fetched"),
        (call("[1]"), "messages[0].tool_calls[0].function.arguments", "JSON that is an object"),
        ({"functions": [{"name": "a"}]}, "functions", "'tools'"),
        ({"function_call": "auto"}, "function_call", "'tool_choice'"),
        ({"audio": {"voice": "x"}}, "audio", "speaks"),
        ({"web_search_options": {}}, "web_search_options", "nothing is fetched"),
        ({"prediction": {"type": "content", "content": "x"}}, "prediction", "ahead"),
        ({"moderation": {"model": "x"}}, "moderation", "nothing is moderated"),
        ({"modalities": ["text", "audio"]}, "modalities[1]", "'text'"),
        ({"tool_choice": "required"}, "tool_choice", "no 'tools'"),
        ({"tools": [function()], "tool_choice": function("see")}, "tool_choice", "'see'"),
        ({"tools": [function(), function()]}, "tools", "one name"),
        ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].type", "'function'"),
        ({"tools": [function()], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type", "'function'"),
        ({"tools": [function()], "response_format": {"type": "json_object"}}, "response_format", "two turns"),
        ({"response_format": {"type": "jsn_object"}}, "response_format.type", "did you mean 'json_object'?"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "'schema'"),
        (schema(shema={}), "response_format.json_schema.shema", "'schema'"),
        (schema(name="a"), "response_format.json_schema.schema", "JSON schema"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "differs"),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
            "reasoning_effort",
            "another",
        ),
        ({"chat_template_kwargs": {"think": True}}, "chat_template_kwargs.think", "'enable_thinking'"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "'stream'"),
        ({"n": 0}, "n", "1"),
        ({"temperature": 3}, "temperature", "2"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        to_job({"model": "m", "messages": [USER], **fields})
    assert raised.value.param == param
    assert said in raised.value.message


def test_a_body_that_is_read_again_says_the_same_without_its_messages() -> None:
    body = {"model": "m", "messages": [USER], "n": 2, "logprobs": True, "tools": [function()], "stream": True,
            "stream_options": {"include_usage": True}}  # fmt: skip
    first, again = chat_of(body), reread(body)
    assert (again.calling, again.choices, again.logprobs, again.tells_usage, again.asked.names) == (
        first.calling, first.choices, first.logprobs, first.tells_usage, first.asked.names,
    )  # fmt: skip
