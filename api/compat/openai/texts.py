"""What OpenAI's routes take as texts: one, or a list of them. Tokens are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo

from tasks.errors import EmptyText
from tasks.items import fault

_NO_TOKENS = "holds token ids, and nothing says of which model's vocabulary they are; send texts"
_WHO_SENDS_THEM = {"input": " (LangChain's OpenAIEmbeddings does with check_embedding_ctx_length=False)"}


def _no_tokens(value: object, info: ValidationInfo) -> object:
    """An id of another vocabulary stands for another word: read as this model's it would give a wrong answer."""
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, int | list):
        raise fault(_NO_TOKENS + _WHO_SENDS_THEM.get(info.field_name or "", ""))
    return value


def form_of(value: object) -> str | None:
    """The branch of a text or a list that a value belongs to; None for neither."""
    return "(text)" if isinstance(value, str) else "(list)" if isinstance(value, list) else None


Texts = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[list[str], Field(min_length=1, fail_fast=True), Tag("(list)")],
    Discriminator(form_of, custom_error_type="form", custom_error_message="must be a text or a list of texts"),
    BeforeValidator(_no_tokens),
]
"""A text or some. The first that is none ends the look at them: an error of each would hold everybody up."""


def listed(texts: str | list[str], field: str) -> list[str]:
    """The texts. Raises EmptyText, which names the place, for a blank one: the reply has no room for its error."""
    if isinstance(texts, str):
        if not texts or texts.isspace():
            raise EmptyText(param=field)
        return [texts]
    for place, text in enumerate(texts):
        if not text or text.isspace():
            raise blank(f"{field}[{place}]")
    return texts


def blank(at: str) -> EmptyText:
    """The error of a blank text among others, by its place."""
    return EmptyText(f"{at!r} is empty or blank; send some text.", param=at)


def names_of(body: Mapping[str, Any], field: str, times: int = 1) -> dict[str, str]:
    """How items are called in the body: each text of its `field` is so many items, one after the other."""
    given = body[field]
    if isinstance(given, str):
        return {"items": field, **{f"items[{place}]": field for place in range(times)}}
    own = {f"items[{place}]": f"{field}[{place // times}]" for place in range(len(given) * times if times > 1 else 0)}
    return {"items": field, **own}
