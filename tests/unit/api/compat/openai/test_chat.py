"""Jobs that have ended as chats, whole and in chunks."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from api.compat.endpoints import Ended
from api.compat.failures import JobFailed
from api.compat.openai.chat import ChatReply, to_reply
from api.compat.openai.chat_request import reread
from api.compat.openai.chat_stream import events
from api.texts import Delta
from tests.unit.api.compat.ends import ID, ended

LOOK = {"type": "function", "function": {"name": "look"}}
CALL = '<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'
LOGPROBS = [{"token": "x", "logprob": -1.0, "bytes": [120], "top_logprobs": []}]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hello"}], **fields}


def end(*texts: str, reason: str = "stop") -> Ended:
    rows = [{"text": text, "finish_reason": reason, "logprobs": LOGPROBS} for text in texts]
    usage = {"prompt_tokens": 4 * len(texts), "completion_tokens": 3}
    return ended("generate", rows, model="m:default", usage=usage)


async def chunks(asked: dict[str, Any], whole: Ended) -> list[Any]:
    """The events of a stream whose texts come letter by letter, the choices in turns."""

    async def source() -> AsyncGenerator[Delta | Ended]:
        texts = [row.get("text", "") for row in whole.rows]
        for place in range(max(map(len, texts))):
            for item, text in enumerate(texts):
                if place < len(text):
                    yield Delta(item, place, text[place])
        yield whole

    frames = [frame async for frame in events(str(ID), source(), reread(asked), 1_700_000_000)]
    assert frames[-1] == b"data: [DONE]\n\n"
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames[:-1]]


def test_a_reply_has_its_choices_and_counts_the_prompt_once() -> None:
    reply = to_reply(end("Yes.", "No."), body(n=2))
    ChatReply.model_validate(reply)
    assert [choice["message"]["content"] for choice in reply["choices"]] == ["Yes.", "No."]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1]
    assert reply["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    assert (reply["model"], reply["choices"][0]["logprobs"]) == ("m:default", None)


def test_log_probabilities_are_told_where_they_were_asked_for() -> None:
    reply = to_reply(end("Yes."), body(logprobs=True))
    ChatReply.model_validate(reply)
    assert reply["choices"][0]["logprobs"] == {"content": LOGPROBS, "refusal": None}


@pytest.mark.parametrize(
    ("text", "reason", "content", "finish"),
    [
        (CALL, "stop", None, "tool_calls"),
        (f"I look. {CALL}", "stop", "I look.", "tool_calls"),
        (CALL, "length", None, "length"),
        ("I look.", "stop", "I look.", "stop"),
        ("", "stop", "", "stop"),
    ],
)
def test_a_call_ends_a_turn_that_is_whole(text: str, reason: str, content: str | None, finish: str) -> None:
    reply = to_reply(end(text, reason=reason), body(tools=[LOOK]))
    ChatReply.model_validate(reply)
    (choice,) = reply["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, finish)
    assert ("tool_calls" in choice["message"]) == (CALL in text)


def test_calls_have_ids_of_their_own() -> None:
    reply = to_reply(end(CALL * 2, CALL), body(n=2, tools=[LOOK]))
    ids = [call["id"] for choice in reply["choices"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 3


def test_a_choice_that_failed_is_the_error_of_all() -> None:
    stored = {"code": "empty_text", "message": "'items[1]' is blank.", "param": "items[1]"}
    rows: list[dict[str, Any]] = [{"text": "a", "finish_reason": "stop"}, {"error": stored}]
    with pytest.raises(JobFailed) as raised:
        to_reply(ended("generate", rows), body(n=2))
    assert (raised.value.code, raised.value.param) == ("empty_text", "messages")


@pytest.mark.parametrize("text", ["Yes, I do.", CALL, f"<think>Hm.</think>\nI look. {CALL}", "", "<"])
async def test_chunks_make_up_the_reply(text: str) -> None:
    asked = body(tools=[LOOK], n=2, logprobs=True, stream=True, stream_options={"include_usage": True})
    whole = end(text, "Other.")
    *told, usage = await chunks(asked, whole)
    reply = to_reply(whole, asked)
    assert usage["choices"] == []
    assert usage["usage"] == reply["usage"]
    assert all(chunk["usage"] is None for chunk in told)
    for choice in reply["choices"]:
        mine = [one for chunk in told for one in chunk["choices"] if one["index"] == choice["index"]]
        deltas = [one["delta"] for one in mine]
        assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
        assert "".join(delta.get("content") or "" for delta in deltas) == (choice["message"]["content"] or "")
        thoughts = "".join(delta.get("reasoning_content", "") for delta in deltas)
        assert thoughts == choice["message"].get("reasoning_content", "")
        calls = [{**call, "index": None} for delta in deltas for call in delta.get("tool_calls", ())]
        assert calls == [{**call, "index": None} for call in choice["message"].get("tool_calls", ())]
        assert [one["finish_reason"] for one in mine] == [None] * (len(mine) - 1) + [choice["finish_reason"]]
        assert mine[-1]["logprobs"] == choice["logprobs"]
