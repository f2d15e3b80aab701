"""What a caller may ask for, checked for shape: one job, whatever door it came through.

A shape error names the field (`items[3].text`), says what is expected, and offers the nearest valid name. The texts
that a caller sent never appear in a message. What depends on the model is checked by `tasks.prepare`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from catalog.errors import nearest, suggestion
from catalog.options import Word, check_names
from catalog.options.words import Tree
from catalog.terms import Lane, Verb
from tasks.errors import InvalidRequest, LimitExceeded, TaskError
from tasks.items import ItemRequest, Strict, fault, form_of, plain

MAX_TAGS = 32
MAX_TAG_CHARS = 128
MAX_OPTIONS = 64
MAX_DEADLINE_S = 30 * 86_400


Label = Annotated[str, Field(min_length=1, max_length=MAX_TAG_CHARS), AfterValidator(plain)]
Input = Annotated[
    Annotated[str, Tag("(text)")] | Annotated[ItemRequest, Tag("(object)")],
    Discriminator(
        form_of,
        custom_error_type="form",
        custom_error_message="must be a text or an object with 'text'",
    ),
]
"""Branches of unions have names in parentheses: no field has, so `path` knows to leave them out of an error's place."""


class WebhookRequest(Strict):
    """Who is told when a job ends, besides the endpoints of its caller."""

    url: Annotated[str, Field(min_length=1, description="https:// to a public host; see docs/webhooks.md")]
    secret: Annotated[
        str | None,
        Field(min_length=1, description="`whsec_` and 24 to 64 bytes in base64; left out, your own secret signs"),
    ] = None
    inline: Annotated[bool, Field(description="A small result goes along")] = False


class JobRequest(Strict):
    """A job to run: one verb on one model, over one or more items."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "verb": "encode",
                    "model": "sentence-transformers/all-MiniLM-L6-v2",
                    "items": ["a text", {"id": "b", "text": "another"}],
                    "options": {"normalize": True},
                }
            ]
        }
    )

    verb: Annotated[Verb, Field(strict=False, description="What to do"), Word]
    model: Annotated[str, Field(min_length=1, description="A model's id, or `id:profile`; see GET /v1/models")]
    items: Annotated[list[Input], Field(min_length=1, description="Inputs, as texts or as objects with an id of yours")]
    query: Annotated[Input | None, Field(description="Of `score`: what the items are scored against")] = None
    labels: Annotated[
        Annotated[list[str], Field(fail_fast=True)] | None,
        Field(description="Of `extract`: what to look for; the same as `options.labels`"),
    ] = None
    output_schema: Annotated[
        Tree | None,
        Field(description="Of `extract`: the fields to fill in; the same as `options.output_schema`"),
    ] = None
    options: Annotated[dict[str, Any], Field(max_length=MAX_OPTIONS, description="Options of the verb")] = {}  # noqa: RUF012 - pydantic copies it
    lane: Annotated[Lane, Field(strict=False, description="`interactive` goes first, `bulk` gives way"), Word] = (
        Lane.INTERACTIVE
    )
    priority: Annotated[int, Field(ge=0, le=9, description="0 is the least urgent, 9 the most")] = 5
    deadline_s: Annotated[
        float | None,
        Field(gt=0, le=MAX_DEADLINE_S, allow_inf_nan=False, description="Seconds after which nobody wants the result"),
    ] = None
    tags: Annotated[list[Label], Field(max_length=MAX_TAGS, description="Words to find the job by")] = []  # noqa: RUF012 - pydantic copies it
    retention_s: Annotated[
        int | None, Field(ge=60, description="Seconds that the finished job is kept; the server has a default")
    ] = None
    store: Annotated[
        bool, Field(description="False: the inputs go when the job ends, and its result once it was answered")
    ] = True

    webhook: Annotated[WebhookRequest | None, Field(description="Who is told when the job ends")] = None

    @model_validator(mode="after")
    def _fits_the_verb(self) -> JobRequest:
        if (self.query is not None) != (self.verb is Verb.SCORE):
            raise fault("is missing: what to score the items against" if self.query is None else _NOT_HERE, "query")
        for name in ("labels", "output_schema"):
            if getattr(self, name) is not None:
                if self.verb is not Verb.EXTRACT:
                    raise fault(f"is for 'extract' alone: the verb is {self.verb.value}", name)
                if name in self.options:
                    raise fault("is given twice: leave it out of 'options'", name)
        return self

    @property
    def asked(self) -> dict[str, Any]:
        """All options, those with a field of their own among them."""
        own = {"labels": self.labels, "output_schema": self.output_schema}
        return {**self.options, **{name: value for name, value in own.items() if value is not None}}


def parse_request(raw: object, max_items: int) -> JobRequest:
    """The request in a decoded JSON body. Raises InvalidRequest, InvalidOption or LimitExceeded, naming the field.

    Names come first: the validator makes an error of each unknown one, and a body has room for a million.
    """
    if not isinstance(raw, Mapping):
        raise InvalidRequest("The body must be a JSON object.")
    items = raw.get("items")
    if isinstance(items, Sequence) and len(items) > max_items and not isinstance(items, str):
        raise LimitExceeded(f"A job holds at most {max_items} items; this one has {len(items)}.", param="items")
    options, verb = raw.get("options"), raw.get("verb")
    if isinstance(options, Mapping) and isinstance(verb, str) and raw.keys() <= JobRequest.model_fields.keys():
        check_names(verb, options)
    try:
        return JobRequest.model_validate(raw)
    except ValidationError as error:
        raise explain(error.errors(include_url=False)) from None


def explain(found: Sequence[Mapping[str, Any]], model: type[BaseModel] | None = None) -> TaskError:
    """The first of pydantic's errors as ours. `model` gives the names that an unknown field may have meant."""
    first = found[0]
    where, kind, value, context = list(first["loc"]), first["type"], first.get("input"), first.get("ctx") or {}
    param = path(where)
    if kind == "extra_forbidden":
        name = str(where[-1])
        return _unknown(name, next(iter(nearest(name, list(model.model_fields), 1) if model else []), ""), where[:-1])
    if kind == "unknown_field":
        return _unknown(context["name"], context["near"], where)
    if kind == "fault":
        param = path([*where, context["at"]] if context["at"] else where)
        return InvalidRequest(f"{param!r} {context['said']}.", param=param)
    if kind == "missing":
        return InvalidRequest(f"{param!r} is missing.", param=param)
    if kind in {"enum", "literal_error"}:
        expected = str(context["expected"])
        hint = suggestion(value, re.findall(r"'([^']*)'", expected)) if isinstance(value, str) else "."
        return InvalidRequest(f"{param!r} must be {expected}{hint}", param=param)
    # What is left says of itself what is wrong, in words of pydantic or of ours ("form", "value_error").
    message = f"{param!r} {_SHOULD.sub('must ', first['msg'].removeprefix('Value error, '))}"
    return (LimitExceeded if kind == "too_large" else InvalidRequest)(
        f"{message.replace(' after validation', '')}.", param=param
    )


def _unknown(name: str, near: str, where: Sequence[str | int]) -> InvalidRequest:
    hint = f"; did you mean {near!r}?" if near else "."
    return InvalidRequest(f"Unknown field {name[:100]!r}{hint}", param=path([*where, name[:200]])[:200])


_NOT_HERE = "is for 'score' alone"
_SHOULD = re.compile(r"^\w+ should ")


def path(location: Sequence[str | int]) -> str:
    """`("items", 3, "text")` as `items[3].text`."""
    out = ""
    for part in location:
        if isinstance(part, int):
            out += f"[{part}]"
        elif not part.startswith("("):
            out += f".{part}" if out else part
    return out
