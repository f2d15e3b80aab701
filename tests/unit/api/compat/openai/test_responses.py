"""Responses: bodies as jobs, jobs as responses, and their events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from api.compat.endpoints import Ended
from api.compat.failures import renamed
from api.compat.openai.responses import Events, ResponseReply, to_job, to_reply
from api.compat.openai.responses_request import reread
from api.texts import Delta
from catalog.errors import RoostError
from tasks.errors import InvalidRequest
from tasks.request import parse_request
from tests.unit.api.compat.ends import ID, ended

PNG = "data:image/png;base64,iVBORw0KGgo="
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
CALL = '<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'
USAGE = {"prompt_tokens": 4, "completion_tokens": 3}


def asked(**fields: Any) -> dict[str, Any]:
    """The job of a response, which the native API has to take as it is."""
    raw = dict(to_job({"model": "m", "input": "Hello", **fields}).raw)
    parse_request(raw, 10)
    return raw


def end(text: str, reason: str = "stop", **fields: Any) -> Ended:
    return ended("generate", [{"text": text, "finish_reason": reason, **fields}], model="m", usage=USAGE)


def test_a_text_is_one_turn_after_the_instructions() -> None:
    found = asked(instructions="Be brief.", max_output_tokens=5)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert found["items"] == [{"messages": messages}]
    assert found["options"] == {"temperature": 1.0, "max_tokens": 5}


def test_items_are_turns_and_calls_belong_to_the_turn_before() -> None:
    text = {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What?"},
                                                        {"type": "input_image", "image_url": PNG, "detail": "auto"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "id": "f", "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": '{"at": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a dog"}]},
    ]  # fmt: skip

    def call(id_: str, **arguments: Any) -> dict[str, Any]:
        return {"id": id_, "type": "function", "function": {"name": "look", "arguments": arguments}}

    assert asked(input=items)["items"][0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What?"},
                                     {"type": "image", "image": {"data": "iVBORw0KGgo=", "format": "png"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}],
         "tool_calls": [call("c1"), call("c2", at=2)]},
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "a dog"}]},
    ]  # fmt: skip


def test_options_have_their_other_names() -> None:
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
    found = asked(
        temperature=0, top_p=0.5, seed=3, text={"format": form}, top_logprobs=2,
        include=["message.output_text.logprobs"], reasoning={"effort": "low"},
    )["options"]  # fmt: skip
    assert found == {
        "temperature": 0.0, "top_p": 0.5, "seed": 3, "logprobs": True, "top_logprobs": 2, "thinking": True,
        "grammar": {"json_schema": {"type": "object"}},
    }  # fmt: skip
    tools = asked(tools=[LOOK], tool_choice={"type": "function", "name": "look"})["options"]
    assert tools["tools"] == [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    assert tools["grammar"] == {"json_schema": {"type": "object"}}


def test_what_means_nothing_here_is_taken_and_left_out() -> None:
    fields = {
        "user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "prompt_cache_key": "k",
        "prompt_cache_retention": "24h", "safety_identifier": "s", "truncation": "disabled", "background": False,
        "reasoning": {"summary": "auto"},
    }  # fmt: skip
    assert asked(**fields)["options"] == {"temperature": 1.0}


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "the whole conversation"),
        ({"conversation": "c"}, "conversation", "the whole conversation"),
        ({"context_management": [{"type": "compaction"}]}, "context_management", "the whole conversation"),
        ({"background": True}, "background", "POST /v1/jobs"),
        ({"prompt": {"id": "p"}}, "prompt", "'input'"),
        ({"instruction": "x"}, "instruction", "did you mean 'instructions'?"),
        ({"input": []}, "input", "at least 1"),
        ({"input": 3}, "input", "a list of items"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0]", "'function_call'"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]", "'input_text'"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "'function'"),
        ({"truncation": "auto"}, "truncation", "'disabled'"),
        ({"top_logprobs": 3}, "top_logprobs", "'message.output_text.logprobs' in 'include'"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", "JSON schema"),
        ({"tools": [LOOK], "text": {"format": {"type": "json_object"}}}, "text.format", "two turns"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        asked(**fields)
    assert raised.value.param == param
    assert said in raised.value.message


def test_errors_of_a_turn_name_the_item_that_it_came_from() -> None:
    body = {"model": "m", "instructions": "x", "input": [{"type": "reasoning"}, {"role": "user", "content": "a"}]}
    names = to_job(body).names
    assert names["items[0].messages[0].content"] == "instructions"
    assert names["items[0].messages[1]"] == "input[1]"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("messages[0].content[1].image.data", "input[1].content[1].image_url"),
        ("items[0].messages[0].content[1].image", "input[1].content[1].image_url"),
        ("items[0].messages[0].content[0].text", "input[1].content[0].text"),
        ("messages[1].content[0].image.data", "input[2].output[0].image_url"),
        ("items[0].messages[1].content[1].text", "input[2].output[1].text"),
    ],
)
def test_faults_are_named_as_the_caller_wrote_them(ours: str, theirs: str) -> None:
    image, text = {"type": "input_image", "image_url": PNG}, {"type": "input_text", "text": "a"}
    items = [
        {"type": "reasoning"},
        {"role": "user", "content": [text, image]},
        {"type": "function_call_output", "call_id": "c", "output": [image, text]},
    ]
    names = to_job({"model": "m", "input": items}).names
    assert renamed(InvalidRequest("", param=ours), names).param == theirs


def test_a_response_holds_thoughts_words_and_calls_in_order() -> None:
    body = {"model": "m", "input": "a", "tools": [LOOK], "metadata": {"k": "v"}}
    reply = to_reply(end(f"<think>Hm.</think>\nI look. {CALL}"), body)
    ResponseReply.model_validate(reply)
    thought, words, call = reply["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert words["content"] == [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "look", '{"at":1}')
    assert len({item["id"] for item in reply["output"]}) == 3
    assert (reply["status"], reply["metadata"], reply["usage"]["total_tokens"]) == ("completed", {"k": "v"}, 7)


@pytest.mark.parametrize("text", ["", "It is"])
def test_a_text_that_was_cut_is_incomplete(text: str) -> None:
    reply = to_reply(end(text, "length"), {"model": "m", "input": "a"})
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    (item,) = reply["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", text)


async def told(pieces: list[str], body: dict[str, Any], whole: Ended) -> list[dict[str, Any]]:
    async def source() -> AsyncGenerator[Delta | Ended]:
        start = 0
        for piece in pieces:
            yield Delta(0, start, piece)
            start += len(piece)
        yield whole

    frames = Events().told(str(ID), source(), reread(body), 1_700_000_000)
    return [json.loads(frame.split(b"data: ")[1]) async for frame in frames]


@pytest.mark.parametrize("text", ["Yes.", "", CALL, f"<think>Hm.</think>\nI look. {CALL}", "<think>never ends"])
async def test_events_make_up_the_response(text: str) -> None:
    body = {"model": "m", "input": "a", "tools": [LOOK]}
    logprobs = [{"token": "x", "logprob": -1.0, "bytes": [120], "top_logprobs": []}]
    whole = end(text, logprobs=logprobs)
    events = await told(list(text), body, whole)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"] == to_reply(whole, body)
    assert [e["item"] for e in events if e["type"] == "response.output_item.done"] == events[-1]["response"]["output"]
    added = [event["item"]["id"] for event in events if event["type"] == "response.output_item.added"]
    assert added == [item["id"] for item in events[-1]["response"]["output"]]
    for index, item in enumerate(events[-1]["response"]["output"]):
        deltas = "".join(e["delta"] for e in events if e.get("output_index") == index and e["type"].endswith(".delta"))
        assert deltas == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
