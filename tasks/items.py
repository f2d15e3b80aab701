"""What an item may hold, checked for shape: a text, a conversation, images, audio, a document, precomputed vectors.

Bytes come as base64 in JSON and as they are in msgpack. An item that passed is a plain map (`as_payload`), which is
what the message and the row carry and what an adapter reads:
`{"id"?, "text"?, "messages"?, "images"?: [{"data", "format"?}], "audio"?, "document"?, "multivector"?, "entities"?}`.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from catalog.schema import InputKind

MAX_ID_CHARS = 256
MAX_IMAGES = 16
MAX_MESSAGES = 1000
MAX_VECTORS = 65_536
MAX_ENTITIES = 1000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def plain(value: str) -> str:
    """No control characters: these strings are kept as text and shown in lists."""
    if _CONTROL.search(value):
        raise ValueError("must not hold control characters such as U+0000 or a line break")
    return value


def _bytes(value: object) -> object:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("must be base64 (standard alphabet, padded)") from None
    return value


ItemId = Annotated[str, Field(max_length=MAX_ID_CHARS), AfterValidator(plain)]
Data = Annotated[bytes, BeforeValidator(_bytes, json_schema_input_type=str), Field(min_length=1)]
Format = Annotated[str, Field(max_length=100), AfterValidator(plain)]


class Strict(BaseModel):
    """Unknown fields are errors, and so are values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Media(Strict):
    """A file: its bytes, and what it is if the caller knows; the content decides."""

    data: Data
    format: Format | None = None


class Audio(Media):
    """Sound. `sample_rate` is only needed for raw 16-bit PCM."""

    sample_rate: Annotated[int, Field(ge=1000, le=384_000)] | None = None


class Document(Media):
    """A document. Its `name` helps to tell formats that have no signature, such as CSV from plain text."""

    name: Annotated[str, Field(max_length=500), AfterValidator(plain)] | None = None


class TextPart(Strict):
    """Text in a message."""

    type: Literal["text"]
    text: str


class ImagePart(Strict):
    """An image in a message."""

    type: Literal["image"]
    image: Media


class Message(Strict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] | None = None
    name: Annotated[str, Field(max_length=200)] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: Annotated[str, Field(max_length=200)] | None = None


class KnownEntity(Strict):
    """A piece of the item's text, in code points: what an extraction gives as an entity can be sent as it is.

    `text`, if it is there, must be what the offsets say. `score` is not read.
    """

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=1)]
    label: Annotated[str, Field(max_length=1000)]
    text: str | None = None
    score: float | int | None = None


class ItemRequest(Strict):
    """One input. The `id` comes back with its result; it need not be unique."""

    id: ItemId | None = None
    text: str | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    images: Annotated[list[Media], Field(min_length=1, max_length=MAX_IMAGES)] | None = None
    audio: Audio | None = None
    document: Document | None = None
    multivector: Annotated[
        list[Annotated[list[float | int], Field(min_length=1)]] | None, Field(min_length=1, max_length=MAX_VECTORS)
    ] = None
    entities: Annotated[
        list[KnownEntity] | None, Field(max_length=MAX_ENTITIES, description="Of the text, for models of relations")
    ] = None

    @model_validator(mode="after")
    def _holds_something(self) -> ItemRequest:
        held = self.kinds
        if not held:
            raise ValueError("must hold a text, messages, images, audio, a document or a multivector")
        if self.entities is not None:
            _check_entities(self.text, self.entities)
        if "messages" in held and len(held) > 1:
            raise ValueError("must hold messages alone: images belong inside them")
        if self.multivector is not None:
            width = len(self.multivector[0])
            if any(len(row) != width for row in self.multivector):
                raise ValueError("must have vectors of one length in 'multivector'")
            if not all(math.isfinite(value) for row in self.multivector for value in row):
                raise ValueError("must have finite numbers in 'multivector'")
        return self

    @property
    def kinds(self) -> tuple[InputKind, ...]:
        """What it holds."""
        found: dict[InputKind, object] = {
            "text": self.text,
            "messages": self.messages,
            "image": self.images,
            "audio": self.audio,
            "document": self.document,
            "multivector": self.multivector,
            "entities": self.entities,
        }
        return tuple(kind for kind, value in found.items() if value is not None)


def as_payload(item: str | ItemRequest) -> dict[str, Any]:
    """The item as a plain map."""
    if isinstance(item, str):
        return {"text": item}
    if item.kinds == ("text",):
        return {"text": item.text} if item.id is None else {"id": item.id, "text": item.text}
    found: dict[str, Any] = {} if item.id is None else {"id": item.id}
    if item.text is not None:
        found["text"] = item.text
    if item.messages is not None:
        found["messages"], images = _conversation(item.messages)
        if images:
            found["images"] = images
    if item.images is not None:
        found["images"] = [_file(image) for image in item.images]
    if item.audio is not None:
        found["audio"] = _file(item.audio)
    if item.document is not None:
        found["document"] = _file(item.document)
    if item.multivector is not None:
        rows = np.asarray(item.multivector, dtype="<f4")
        found["multivector"] = {"num_tokens": rows.shape[0], "token_dims": rows.shape[1], "values": rows.tobytes()}
    if item.entities is not None:
        found["entities"] = [{"start": one.start, "end": one.end, "label": one.label} for one in item.entities]
    return found


def _check_entities(text: str | None, entities: list[KnownEntity]) -> None:
    if text is None:
        raise ValueError("must hold the text that its 'entities' are in")
    for index, one in enumerate(entities):
        if not one.start < one.end <= len(text):
            raise ValueError(
                f"must have offsets within its {len(text)} characters in 'entities[{index}]', the end after the start"
            )
        if one.text is not None and one.text != text[one.start : one.end]:
            raise ValueError(f"must have in 'entities[{index}]' the text that its offsets say")


def _conversation(messages: list[Message]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages with their images taken out: a part `{"type": "image"}` stands for the next of the images."""
    turns: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for message in messages:
        turn = message.model_dump(exclude_none=True, exclude={"content"})
        if isinstance(message.content, list):
            parts: list[dict[str, Any]] = []
            for part in message.content:
                if isinstance(part, ImagePart):
                    images.append(_file(part.image))
                    parts.append({"type": "image"})
                else:
                    parts.append({"type": "text", "text": part.text})
            turn["content"] = parts
        else:
            turn["content"] = message.content or ""
        turns.append(turn)
    return turns, images


def _file(media: Media) -> dict[str, Any]:
    return media.model_dump(exclude_none=True)


def texts_of(payload: Mapping[str, Any]) -> list[str]:
    """Every text that a model would read of an item, in order."""
    if "messages" in payload:
        found = []
        for message in payload["messages"]:
            content = message["content"]
            if isinstance(content, str):
                found.append(content)
            else:
                found.extend(part["text"] for part in content if part["type"] == "text")
        return found
    return [payload["text"]] if "text" in payload else []
