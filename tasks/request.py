"""What a caller may ask for, checked for shape: one job, whatever door it came through.

A shape error names the field (`items[3].text`), says what is expected, and offers the nearest valid name. The texts
that a caller sent never appear in a message. What depends on the model is checked by `tasks.prepare`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from catalog.errors import nearest
from catalog.options import Word, check_names
from catalog.terms import Lane, Verb
from tasks.errors import InvalidRequest, LimitExceeded
from tasks.items import ItemRequest, Strict, plain

MAX_TAGS = 32
MAX_TAG_CHARS = 128
MAX_OPTIONS = 64
MAX_DEADLINE_S = 30 * 86_400


Label = Annotated[str, Field(min_length=1, max_length=MAX_TAG_CHARS), AfterValidator(plain)]


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
    items: Annotated[
        list[str | ItemRequest], Field(min_length=1, description="Inputs, as texts or as objects with an id of yours")
    ]
    query: Annotated[str | ItemRequest | None, Field(description="Of `score`: what the items are scored against")] = (
        None
    )
    labels: Annotated[
        list[str] | None, Field(description="Of `extract`: what to look for; the same as `options.labels`")
    ] = None
    output_schema: Annotated[
        dict[str, Any] | None,
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

    @model_validator(mode="after")
    def _fits_the_verb(self) -> JobRequest:
        if (self.query is not None) != (self.verb is Verb.SCORE):
            said = "needs a 'query'" if self.verb is Verb.SCORE else "takes no 'query'"
            raise ValueError(f"{said}: the verb is {self.verb.value}")
        for name in ("labels", "output_schema"):
            if getattr(self, name) is not None:
                if self.verb is not Verb.EXTRACT:
                    raise ValueError(f"takes no '{name}': the verb is {self.verb.value}")
                if name in self.options:
                    raise ValueError(f"has '{name}' twice: leave it out of 'options'")
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
    _check_names(raw)
    try:
        return JobRequest.model_validate(raw)
    except ValidationError as error:
        raise explain(error.errors(include_url=False), JobRequest) from None


def _check_names(raw: Mapping[str, object]) -> None:
    _refuse_unknown(raw, JobRequest, ())
    items, verb, options, query = raw.get("items"), raw.get("verb"), raw.get("options"), raw.get("query")
    if isinstance(query, Mapping):
        _refuse_unknown(query, ItemRequest, ("query",))
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping):
            _refuse_unknown(item, ItemRequest, ("items", index))
    if isinstance(options, Mapping) and isinstance(verb, str):
        check_names(verb, options)


def _refuse_unknown(fields: Mapping[str, object], model: type[BaseModel], where: tuple[str | int, ...]) -> None:
    unknown = next((name for name in fields if name not in model.model_fields), None)
    if unknown is not None:
        raise _unknown(unknown, model, where)


def _unknown(name: str, model: type[BaseModel] | None, where: Sequence[str | int]) -> InvalidRequest:
    return InvalidRequest(
        f"Unknown field {name[:100]!r}{_nearest(name, model)}", param=path([*where, name[:200]])[:200]
    )


def explain(found: Sequence[Mapping[str, Any]], model: type[BaseModel] | None = None) -> InvalidRequest:
    """The first of pydantic's errors as ours. `model` gives the names that an unknown field may have meant."""
    first = next((e for e in found if not _other_branch(e)), found[0])
    param = path([part for part in first["loc"] if part not in _BRANCHES])
    kind, value = first["type"], first.get("input")
    if kind == "extra_forbidden":
        return _unknown(str(first["loc"][-1]), model, first["loc"][:-1])
    if kind == "missing":
        return InvalidRequest(f"{param!r} is missing.", param=param)
    if kind == "enum":
        expected = str(first["ctx"]["expected"])
        close = nearest(value, re.findall(r"'([^']*)'", expected), 1) if isinstance(value, str) else []
        hint = f"; did you mean {close[0]!r}?" if close else "."
        return InvalidRequest(f"{param!r} must be {expected}{hint}", param=param)
    if first["loc"][-1] == "str" or kind == "model_type":
        return InvalidRequest(f"{param!r} must be a text or an object with 'text'.", param=param)
    message = _SHOULD.sub("must ", first["msg"].removeprefix("Value error, "))
    return InvalidRequest(f"{param!r} {message.replace(' after validation', '')}.", param=param)


_BRANCHES = ("str", "ItemRequest")
"""The branches of the union of items: pydantic puts their names into the places of errors."""

_SHOULD = re.compile(r"^\w+ should ")


def path(location: Sequence[str | int]) -> str:
    """`("items", 3, "text")` as `items[3].text`."""
    out = ""
    for part in location:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else part
    return out


def _other_branch(error: Mapping[str, Any]) -> bool:
    """Whether this error only says that an object is no text: the branch that its caller did not mean."""
    return error["loc"][-1:] == ("str",) and isinstance(error.get("input"), Mapping)


def _nearest(name: str, model: type[BaseModel] | None) -> str:
    close = nearest(name, list(model.model_fields), 1) if model is not None else []
    return f"; did you mean {close[0]!r}?" if close else "."
