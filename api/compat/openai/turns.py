"""Messages of a conversation as OpenAI's clients write them, and as the native API reads them: one for one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Discriminator, Field, Tag

from api.compat.openai.texts import form_of
from api.compat.shapes import untaken
from tasks.errors import InvalidRequest
from tasks.items import MAX_MESSAGES, MAX_PARTS, MAX_TOOL_CALLS, Strict, fault

_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]*)(?:;[\w.+=-]+)*;base64,(?P<data>.*)", re.DOTALL)
_HTTP = re.compile(r"https?:", re.IGNORECASE)
_FORMS = "send a URL that can be fetched, or the image's own bytes as 'data:image/png;base64,…'"


class ImageUrl(Strict):
    """An image, in the request itself or where it can be fetched."""

    url: Annotated[str, Field(description="A `data:` URL with base64, or an `https:` URL that the server fetches")]
    detail: Annotated[Literal["auto", "low", "high", "original"] | None, Field(description="Taken, and ignored")] = None


class ChatTextPart(Strict):
    """Text in a message."""

    type: Literal["text"]
    text: str


class ChatImagePart(Strict):
    """An image in a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


class Refusal(Strict):
    """What a model said in place of an answer; it is read as text."""

    type: Literal["refusal"]
    refusal: str


_NOT_READ = {"input_audio": "sound", "file": "files", "video_url": "video"}


def _readable(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in _NOT_READ:
        raise fault(f"is not taken: no chat model here reads {_NOT_READ[kind]}", "type")
    return value


def by_type(tags: Mapping[str, str]) -> Callable[[object], str | None]:
    """Which branch of a union a value belongs to, as sent or as read, by its type. `tags` are those of the types."""

    def tag_of(value: object) -> str | None:
        kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return tags.get(kind) if isinstance(kind, str) else None

    return tag_of


Part = Annotated[
    Annotated[ChatTextPart, Tag("(text)")]
    | Annotated[ChatImagePart, Tag("(image)")]
    | Annotated[Refusal, Tag("(refusal)")],
    Discriminator(
        by_type({"text": "(text)", "image_url": "(image)", "refusal": "(refusal)"}),
        custom_error_type="form",
        custom_error_message="must be a part of the type 'text' or 'image_url'",
    ),
    BeforeValidator(_readable),
]


Content = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[list[Part], Field(max_length=MAX_PARTS), Tag("(list)")],
    Discriminator(form_of, custom_error_type="form", custom_error_message="must be a text or a list of parts"),
]


class CalledFunction(Strict):
    """A function and the arguments that it was called with."""

    name: Annotated[str, Field(max_length=200)]
    arguments: Annotated[str, Field(description="A JSON object")]


class ToolCall(Strict):
    """A call that the model has made."""

    id: Annotated[str, Field(max_length=200)]
    type: Literal["function"] = "function"
    function: CalledFunction
    index: Annotated[int | None, Field(description="Taken, and ignored")] = None


class ChatMessage(Strict):
    """One turn. What replies hold besides is taken, so that a reply's message can be sent back as it is."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Annotated[str | None, Field(max_length=200)] = None
    tool_calls: Annotated[list[ToolCall] | None, Field(max_length=MAX_TOOL_CALLS)] = None
    tool_call_id: Annotated[str | None, Field(max_length=200)] = None
    refusal: Annotated[str | None, Field(description="Read as text where there is no content")] = None
    reasoning_content: Annotated[str | None, Field(description="Taken, and left out of the prompt")] = None
    annotations: Annotated[list[Any] | None, Field(description="Taken, and ignored")] = None
    audio: Annotated[None, untaken("no chat model here reads sound"), Field(description="Refused")] = None
    function_call: Annotated[None, untaken("say it with 'tool_calls'"), Field(description="Refused")] = None


Messages = Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]


def native(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The messages as an item holds them. Raises InvalidRequest for an image that is none."""
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: ChatMessage, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role}
    content = message.content
    if isinstance(content, list):
        found["content"] = list(_parts(content, f"{where}.content"))
    else:
        found["content"] = content if content is not None else message.refusal or ""
    if message.name is not None:
        found["name"] = message.name
    if message.tool_calls:
        found["tool_calls"] = [
            called(
                call.id, call.function.name, call.function.arguments, f"{where}.tool_calls[{index}].function.arguments"
            )
            for index, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    return found


def called(id_: str, name: str, arguments: str, where: str) -> dict[str, Any]:
    """A call as templates read it, with its arguments as an object. Raises InvalidRequest where they are none."""
    try:
        value = orjson.loads(arguments) if arguments.strip() else {}
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where!r} must be a text of JSON that is an object.", param=where)
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": value}}


def _parts(parts: Sequence[ChatTextPart | ChatImagePart | Refusal], where: str) -> Iterator[dict[str, Any]]:
    for index, part in enumerate(parts):
        if isinstance(part, ChatImagePart):
            yield image(part.image_url.url, f"{where}[{index}].image_url.url")
        else:
            yield {"type": "text", "text": part.text if isinstance(part, ChatTextPart) else part.refusal}


def image(url: str, where: str) -> dict[str, Any]:
    """The part of an image by its URL: `data:`, or one to fetch. Raises InvalidRequest for any other."""
    if _HTTP.match(url):
        return {"type": "image", "image": {"url": url}}
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise InvalidRequest(f"{where!r} is not taken: {_FORMS}.", param=where)
    found = {"data": match["data"]}
    if kind := match["type"].rpartition("/")[2]:
        found["format"] = kind[:100]
    return {"type": "image", "image": found}


def image_names(content: str | Sequence[Mapping[str, Any]], ours: str, theirs: str) -> dict[str, str]:
    """How the caller names the images of a native message's content: `theirs` has `{}` for the place of the part.

    A fault is told by the job from its items on, and by a model from its messages on.
    """
    places = [place for place, part in enumerate(content) if isinstance(part, Mapping) and part["type"] == "image"]
    return {
        f"{item}{ours}[{place}].image{field}": theirs.format(place)
        for place in places
        for item in ("", "items[0].")
        for field in ("", ".data", ".format", ".url")
    }
