"""Items of a conversation as a response's `input` has them, and the messages that they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from api.compat.openai.texts import form_of
from api.compat.openai.turns import Refusal, by_type, called, image
from tasks.items import MAX_PARTS, Strict


class InputText(Strict):
    """Text in a message, of whoever."""

    type: Literal["input_text", "output_text"]
    text: str
    annotations: Annotated[list[Any] | None, Field(description="Taken, and ignored")] = None
    logprobs: Annotated[list[Any] | None, Field(description="Taken, and ignored")] = None
    parsed: Annotated[Any, Field(description="Taken, and ignored")] = None


class InputImage(Strict):
    """An image in the request itself."""

    type: Literal["input_image"]
    image_url: Annotated[str, Field(description="A `data:` URL with base64, or an `https:` URL that is fetched")]
    detail: Annotated[Literal["auto", "low", "high", "original"] | None, Field(description="Taken, and ignored")] = None


_PARTS = {"input_text": "(text)", "output_text": "(text)", "input_image": "(image)", "refusal": "(refusal)"}

_Parts = Annotated[
    list[
        Annotated[
            Annotated[InputText, Tag("(text)")]
            | Annotated[InputImage, Tag("(image)")]
            | Annotated[Refusal, Tag("(refusal)")],
            Discriminator(
                by_type(_PARTS),
                custom_error_type="form",
                custom_error_message="must be a part of the type 'input_text', 'input_image' or 'output_text'",
            ),
        ]
    ],
    Field(max_length=MAX_PARTS),
]


Content = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[_Parts, Tag("(list)")],
    Discriminator(form_of, custom_error_type="form", custom_error_message="must be a text or a list of parts"),
]

_Status = Annotated[str | None, Field(description="Taken, and ignored")]


class InputMessage(Strict):
    """One turn, also as a response gave it."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: _Status = None
    status: _Status = None
    phase: _Status = None


class InputCall(Strict):
    """A call that the model has made."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(max_length=200)]
    name: Annotated[str, Field(max_length=200)]
    arguments: Annotated[str, Field(description="A JSON object")]
    id: _Status = None
    status: _Status = None
    parsed_arguments: Annotated[Any, Field(description="Taken, and ignored")] = None


class InputCallOutput(Strict):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(max_length=200)]
    output: Content
    id: _Status = None
    status: _Status = None


class InputReasoning(Strict):
    """What the model thought in an earlier turn: it is left out of the prompt."""

    type: Literal["reasoning"]
    id: _Status = None
    summary: list[Any] | None = None
    content: list[Any] | None = None
    encrypted_content: str | None = None
    status: _Status = None


_ITEMS = {
    "message": "(message)",
    "function_call": "(call)",
    "function_call_output": "(output)",
    "reasoning": "(reasoning)",
}
_typed = by_type(_ITEMS)


def _item(value: object) -> str | None:
    """An item without a type is a message."""
    return "(message)" if isinstance(value, dict) and value.get("type") is None else _typed(value)


InputItem = Annotated[
    Annotated[InputMessage, Tag("(message)")]
    | Annotated[InputCall, Tag("(call)")]
    | Annotated[InputCallOutput, Tag("(output)")]
    | Annotated[InputReasoning, Tag("(reasoning)")],
    Discriminator(
        _item,
        custom_error_type="form",
        custom_error_message="must be of the type 'message', 'function_call', 'function_call_output' or 'reasoning'",
    ),
]


def message_of(item: InputMessage | InputCall | InputCallOutput | InputReasoning, where: str) -> dict[str, Any] | None:
    """The message of an item that stands at `where`; None for what no prompt holds. Raises InvalidRequest."""
    match item:
        case InputMessage():
            role = "system" if item.role == "developer" else item.role
            return {"role": role, "content": _content(item.content, f"{where}.content")}
        case InputCall():
            call = called(item.call_id, item.name, item.arguments, f"{where}.arguments")
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        case InputCallOutput():
            content = _content(item.output, f"{where}.output")
            return {"role": "tool", "tool_call_id": item.call_id, "content": content}
        case InputReasoning():
            return None


def _content(content: str | Sequence[InputText | InputImage | Refusal], where: str) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else list(_native(content, where))


def _native(parts: Sequence[InputText | InputImage | Refusal], where: str) -> Iterator[dict[str, Any]]:
    for index, part in enumerate(parts):
        if isinstance(part, InputImage):
            yield image(part.image_url, f"{where}[{index}].image_url")
        else:
            yield {"type": "text", "text": part.text if isinstance(part, InputText) else part.refusal}
