"""What a rerank body has as documents: texts, or objects of which some fields are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from api.compat.openai.texts import blank
from tasks.errors import InvalidRequest

TEXT = "text"


def _form(value: object) -> str | None:
    return "(text)" if isinstance(value, str) else "(object)" if isinstance(value, dict) else None


Document = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[dict[str, Any], Tag("(object)")],
    Discriminator(_form, custom_error_type="form", custom_error_message="must be a text or an object with 'text'"),
]
"""One document as it is sent."""


def texts_of(documents: Sequence[str | Mapping[str, Any]], fields: Sequence[str] | None) -> list[str]:
    """What is read of each document: the text, or the object's `fields`, one on a line in their order.

    Raises InvalidRequest for an object that has none of them or one that is no text, EmptyText for a blank document:
    both by its place, since a ranking has no room for the error of one document.
    """
    return [_text(document, fields or (TEXT,), f"documents[{place}]") for place, document in enumerate(documents)]


def shown(document: str | Mapping[str, Any], text: str) -> dict[str, Any]:
    """A document in a reply: an object as it was sent, which has a `text` at least."""
    return {TEXT: text} if isinstance(document, str) else {TEXT: text, **document}


def _text(document: str | Mapping[str, Any], fields: Sequence[str], at: str) -> str:
    text = document if isinstance(document, str) else _read(document, fields, at)
    if not text or text.isspace():
        raise blank(at)
    return text


def _read(document: Mapping[str, Any], fields: Sequence[str], at: str) -> str:
    there = [name for name in fields if document.get(name) is not None]
    if not there:
        hint = "" if TEXT not in fields else "; name others in 'rank_fields'"
        raise InvalidRequest(f"{at!r} has no {' and no '.join(map(repr, fields))}{hint}.", param=at)
    for name in there:
        if not isinstance(document[name], str):
            raise InvalidRequest(f"{f'{at}.{name}'!r} must be a text.", param=f"{at}.{name}")
    return "\n".join(document[name] for name in there)
