"""What a response holds, whole and as it is written. Pure.

One writer makes the events of a stream and, from the same parts, the items of the whole: an item's id is its place in
its job, so both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api.compat.openai.toolcalls import Call
from api.compat.openai.wording import Calling, Part, Reader, Thought, Words

Event = tuple[str, dict[str, Any]]
"""The name of an event, and its fields."""


def status_of(row: Mapping[str, Any]) -> str:
    """Whether a text has come to its own end."""
    return "completed" if row["finish_reason"] == "stop" else "incomplete"


class Writer:
    """The items of one response. `items` are those that are whole."""

    def __init__(self, mark: str, calling: Calling | None) -> None:
        """`mark` tells the response from all others."""
        self.items: list[dict[str, Any]] = []
        self._mark = mark
        self._reader = Reader(calling)
        self._open: type[Thought | Words] | None = None
        self._text = ""

    def more(self, text: str) -> Iterator[Event]:
        """The events of a piece of the text."""
        return self._events(self._reader.more(text))

    def end(self, row: Mapping[str, Any]) -> Iterator[Event]:
        """The events of its end. `row` is the text's; its log probabilities are those of all its tokens."""
        parts = self._reader.end()
        yield from self._events([part for part in parts if not isinstance(part, Call)])
        calls = [part for part in parts if isinstance(part, Call)]
        if self._open is None and not self.items and not calls:
            yield from self._opened(Words)
        yield from self._closed(row.get("logprobs", ()), status_of(row))
        for call in calls:
            yield from self._called(call)

    def _events(self, parts: Sequence[Part]) -> Iterator[Event]:
        for part in parts:
            if isinstance(part, Call):
                raise TypeError("a call before the end of its text")
            kind = type(part)
            if self._open is not kind:
                yield from self._closed()
                yield from self._opened(kind)
            self._text += part.text
            yield f"{_EVENT[kind]}.delta", {**self._place, **_inside(kind), "delta": part.text}

    @property
    def _id(self) -> str:
        return f"{self._mark}_{len(self.items)}"

    @property
    def _place(self) -> dict[str, Any]:
        prefix = "fc" if self._open is None else "msg" if self._open is Words else "rs"
        return {"item_id": f"{prefix}_{self._id}", "output_index": len(self.items), "content_index": 0}

    def _opened(self, kind: type[Thought | Words]) -> Iterator[Event]:
        self._open, self._text = kind, ""
        item = self._item("in_progress", [])
        yield "response.output_item.added", {"output_index": len(self.items), "item": item}
        yield "response.content_part.added", {**self._place, "part": self._part([])}

    def _closed(self, logprobs: Sequence[Mapping[str, Any]] = (), status: str = "completed") -> Iterator[Event]:
        kind = self._open
        if kind is None:
            return
        part = self._part(logprobs)
        yield f"{_EVENT[kind]}.done", {**self._place, **_inside(kind, logprobs), "text": self._text}
        yield "response.content_part.done", {**self._place, "part": part}
        item = self._item(status, [part])
        yield "response.output_item.done", {"output_index": len(self.items), "item": item}
        self.items.append(item)
        self._open = None

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        own = {"id": self._place["item_id"], "status": status, "content": content}
        if self._open is Words:
            return {**own, "type": "message", "role": "assistant"}
        return {**own, "type": "reasoning", "summary": []}

    def _part(self, logprobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if self._open is Words:
            return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": list(logprobs)}
        return {"type": "reasoning_text", "text": self._text}

    def _called(self, call: Call) -> Iterator[Event]:
        index = len(self.items)
        place = {"item_id": f"fc_{self._id}", "output_index": index}
        item = {
            "id": place["item_id"],
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{self._id}",
            "name": call.name,
            "arguments": call.arguments,
        }
        begun = {**item, "status": "in_progress", "arguments": ""}
        yield "response.output_item.added", {"output_index": index, "item": begun}
        yield "response.function_call_arguments.delta", {**place, "delta": call.arguments}
        done = {**place, "name": call.name, "arguments": call.arguments}
        yield "response.function_call_arguments.done", done
        yield "response.output_item.done", {"output_index": index, "item": item}
        self.items.append(item)


_EVENT: Mapping[type, str] = {Words: "response.output_text", Thought: "response.reasoning_text"}


def _inside(kind: type, logprobs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    return {"logprobs": list(logprobs)} if kind is Words else {}
