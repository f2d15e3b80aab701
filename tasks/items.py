"""What an item may hold, checked for shape: a text, a conversation, images, audio, a document, precomputed vectors.

Bytes come as base64 in JSON and as they are in msgpack, or are fetched by their URL (`tasks.sources`). An item that
passed is a plain map (`as_payload`), which is what the message and the row carry and what an adapter reads:
`{"id"?, "text"?, "messages"?, "images"?: [{"data", "format"?}], "audio"?, "document"?, "multivector"?, "entities"?}`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from catalog.errors import nearest
from catalog.options.words import Tree
from catalog.schema import InputKind
from tasks.vectors import as_vectors

MAX_ID_CHARS = 256
MAX_IMAGES = 16
MAX_IMAGE_BYTES = 16 * 2**20
MAX_MESSAGES = 1000
MAX_PARTS = 1000
MAX_TOOL_CALLS = 128
MAX_ENTITIES = 1000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_GIVE = "the file's own bytes as base64, or as bytes in msgpack"
_DATA_URL = f"is a data: URL: send what comes after its comma, {_GIVE}"


def plain(value: str) -> str:
    """No control characters: these strings are kept as text and shown in lists."""
    if _CONTROL.search(value):
        raise ValueError("must not hold control characters such as U+0000 or a line break")
    return value


def fault(said: str, at: str = "") -> PydanticCustomError:
    """An error of a field `at` inside the one that is validated; `said` goes on after the field's name."""
    return PydanticCustomError("fault", "{said}", {"said": said, "at": at})


def _bytes(value: object) -> object:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            if value[:5].lower() == "data:":
                raise ValueError(_DATA_URL) from None
            if _URL.match(value):
                raise ValueError(f"is a URL: give it as 'url', or send {_GIVE}") from None
            raise ValueError("must be base64 (standard alphabet, padded)") from None
    return value


def _a_url(value: str) -> str:
    if value[:5].lower() == "data:":
        raise ValueError(f"{_DATA_URL}, under 'data'")
    return value


ItemId = Annotated[str, Field(max_length=MAX_ID_CHARS), AfterValidator(plain)]
Data = Annotated[bytes, BeforeValidator(_bytes, json_schema_input_type=str), Field(min_length=1)]
Url = Annotated[str, Field(min_length=1), AfterValidator(_a_url)]
Format = Annotated[str, Field(max_length=100), AfterValidator(plain)]


class Strict(BaseModel):
    """Unknown fields are errors, and so are values of another type.

    The first unknown name ends the look at the whole: one by one, a million of them would hold everybody up.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    expected: ClassVar[str] = "must be an object"

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, given: object) -> object:
        if type(given) is not dict:
            if isinstance(given, cls):
                return given
            raise fault(cls.expected)
        fields = cls.__pydantic_fields__.keys()
        if not given.keys() <= fields:
            raise cls._unknown(str(next(name for name in given if name not in fields)))
        return given

    @classmethod
    def _unknown(cls, name: str) -> PydanticCustomError:
        close = nearest(name, list(cls.model_fields), 1)
        return PydanticCustomError("unknown_field", "unknown", {"name": name, "near": close[0] if close else ""})


class Media(Strict):
    """A file: its bytes or its URL, and what it is if the caller knows; the content decides."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["data"]}, {"required": ["url"]}]})

    expected: ClassVar[str] = f"must be an object with 'data' ({_GIVE}) or 'url'"

    data: Annotated[Data | None, Field(description="The file: base64 in JSON, bytes in msgpack")] = None
    url: Annotated[Url | None, Field(description="In place of `data`: where the server fetches it from")] = None
    format: Annotated[Format | None, Field(description="Such as `png`; a hint, the content decides")] = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.data is None and self.url is None:
            raise fault("is missing: the file itself, or 'url' in its place", "data")
        if self.data is not None and self.url is not None:
            raise fault("is given besides 'data': leave one of them out", "url")
        return self

    @classmethod
    def _unknown(cls, name: str) -> PydanticCustomError:
        if "url" in name.lower() or name in {"uri", "path", "file"}:
            return fault(f"is not taken: send {_GIVE} under 'data', or a URL under 'url'", name)
        return super()._unknown(name)


def _image_size(value: bytes) -> bytes:
    if len(value) > MAX_IMAGE_BYTES:
        raise PydanticCustomError("too_large", f"must have at most {MAX_IMAGE_BYTES} bytes")
    return value


class Image(Media):
    """An image."""

    data: Annotated[
        Annotated[Data, AfterValidator(_image_size)] | None,
        Field(description="The file: base64 in JSON, bytes in msgpack"),
    ] = None


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
    image: Image


def _part(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return {"text": "(text)", "image": "(image)"}.get(kind) if isinstance(kind, str) else None


def _content(value: object) -> str | None:
    return "(text)" if isinstance(value, str) else "(parts)" if isinstance(value, list) else None


def _form(value: object) -> str | None:
    return "(text)" if isinstance(value, str) else "(object)" if isinstance(value, Mapping | ItemRequest) else None


_Part = Annotated[
    Annotated[TextPart, Tag("(text)")] | Annotated[ImagePart, Tag("(image)")],
    Discriminator(
        _part,
        custom_error_type="form",
        custom_error_message='must be {"type": "text", "text": ...} or {"type": "image", "image": {"data": ...}}',
    ),
]
_Content = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[list[_Part], Field(max_length=MAX_PARTS), Tag("(parts)")],
    Discriminator(
        _content,
        custom_error_type="form",
        custom_error_message="must be a text or a list of parts",
    ),
]


class Message(Strict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: _Content | None = None
    name: Annotated[str, Field(max_length=200)] | None = None
    tool_calls: Annotated[list[Tree], Field(max_length=MAX_TOOL_CALLS)] | None = None
    tool_call_id: Annotated[str, Field(max_length=200)] | None = None


class KnownEntity(Strict):
    """A piece of the item's text, in code points: what an extraction gives as an entity can be sent as it is.

    `text`, if it is there, must be what the offsets say. `score` comes back with what is found about the entity.
    """

    start: Annotated[int, Field(ge=0)]
    end: Annotated[int, Field(ge=1)]
    label: Annotated[str, Field(max_length=1000)]
    text: str | None = None
    score: Annotated[float, Field(ge=0, le=1)] | None = None


_Vectors = Annotated[
    dict[str, Any], BeforeValidator(as_vectors, json_schema_input_type=list[list[float]] | dict[str, Any])
]


class ItemRequest(Strict):
    """One input. The `id` comes back with its result; it need not be unique."""

    id: ItemId | None = None
    text: str | None = None
    messages: Annotated[
        list[Message] | None,
        Field(min_length=1, max_length=MAX_MESSAGES, description="A conversation"),
    ] = None
    images: Annotated[list[Image] | None, Field(min_length=1, max_length=MAX_IMAGES)] = None
    audio: Audio | None = None
    document: Document | None = None
    multivector: Annotated[
        _Vectors | None, Field(description="Precomputed: lists of numbers, or what `encode` gave as `multivector`")
    ] = None
    entities: Annotated[
        list[KnownEntity] | None, Field(max_length=MAX_ENTITIES, description="Of the text, for models of relations")
    ] = None

    @model_validator(mode="after")
    def _holds_something(self) -> ItemRequest:
        held = self.kinds
        if not held:
            raise fault("is missing: hold a text, messages, images, audio, a document or a multivector", "text")
        if self.entities is not None:
            _check_entities(self.text, self.entities)
        if "messages" in held and len(held) > 1:
            raise fault("must be alone in its item: images belong inside the messages", "messages")
        if "multivector" in held and len(held) > 1:
            raise fault("must be alone in its item: it stands for what else is there", "multivector")
        return self

    @property
    def kinds(self) -> tuple[InputKind, ...]:
        """What it holds."""
        values = self.__dict__
        return tuple([kind for name, kind in _HELD if values[name] is not None])


_PLAIN = frozenset({"id", "text"})
_HELD: tuple[tuple[str, InputKind], ...] = (
    ("text", "text"),
    ("messages", "messages"),
    ("images", "image"),
    ("audio", "audio"),
    ("document", "document"),
    ("multivector", "multivector"),
    ("entities", "entities"),
)


def as_payload(item: str | ItemRequest) -> dict[str, Any]:
    """The item as a plain map."""
    if isinstance(item, str):
        return {"text": item}
    if item.model_fields_set <= _PLAIN and item.text is not None:
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
        found["multivector"] = item.multivector
    if item.entities is not None:
        found["entities"] = [one.model_dump(exclude={"text"}, exclude_none=True) for one in item.entities]
    return found


def _check_entities(text: str | None, entities: list[KnownEntity]) -> None:
    if text is None:
        raise fault("needs the item's text, which they are in", "entities")
    for index, one in enumerate(entities):
        at = f"entities[{index}]"
        if not one.start < one.end <= len(text):
            raise fault(f"must have offsets within the text's {len(text)} characters, the end after the start", at)
        if one.text is not None and one.text != text[one.start : one.end]:
            raise fault("must have the text that its offsets say", at)


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


FileField = Literal["images", "audio", "document"]


def files_of(item: ItemRequest) -> Iterator[tuple[str, FileField, int, Media]]:
    """Every file of an item: its place in the item, the field of the payload that has it, and its number there."""
    images = 0
    for turn, message in enumerate(item.messages or ()):
        for place, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if isinstance(part, ImagePart):
                yield f"messages[{turn}].content[{place}].image", "images", images, part.image
                images += 1
    for number, image in enumerate(item.images or ()):
        yield f"images[{number}]", "images", number, image
    if item.audio is not None:
        yield "audio", "audio", 0, item.audio
    if item.document is not None:
        yield "document", "document", 0, item.document


def form_of(item: object) -> str | None:
    """The branch of the union of items that a value belongs to; None for neither."""
    return _form(item)


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
