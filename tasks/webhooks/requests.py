"""What callers ask for of endpoints, checked for shape. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from tasks.errors import InvalidRequest
from tasks.items import Strict, fault
from tasks.moments import Moment
from tasks.request import explain
from tasks.webhooks.events import PATTERNS
from tasks.webhooks.schedule import State

M = TypeVar("M", bound=BaseModel)

_Url = Annotated[str, Field(min_length=1, description="https:// to a public host; see docs/webhooks.md")]
_Events = Annotated[
    list[str], Field(min_length=1, max_length=len(PATTERNS), description=f"Any of {', '.join(PATTERNS)}")
]
_Secret = Annotated[str, Field(min_length=1, description="`whsec_` and 24 to 64 bytes in base64")]
_Description = Annotated[str, Field(max_length=500)]
_Inline = Annotated[bool, Field(description="Small results go along with events of jobs")]


class NewEndpoint(Strict):
    """An endpoint to be made."""

    url: _Url
    events: _Events = ["*"]  # noqa: RUF012 - pydantic copies it
    description: _Description = ""
    inline: _Inline = False
    secret: _Secret | None = None


class EndpointChange(Strict):
    """What is to be different of an endpoint; what is left out stays."""

    url: _Url | None = None
    events: _Events | None = None
    description: _Description | None = None
    inline: _Inline | None = None

    @classmethod
    def _unknown(cls, name: str) -> PydanticCustomError:
        if name == "secret":
            return fault("is changed by POST /v1/webhooks/{id}/rotate", name)
        return super()._unknown(name)


class NewSecret(Strict):
    """A secret to sign with from now on; left out, one is made."""

    secret: _Secret | None = None


class Range(Strict):
    """Which deliveries of an endpoint are to be sent again."""

    since: Annotated[Moment, Field(description="Those created from this time on (RFC 3339)")]
    until: Annotated[Moment | None, Field(description="Those created before this time; now, if left out")] = None
    status: Annotated[
        list[Annotated[State, Field(strict=False)]] | None,
        Field(min_length=1, description="Those in these states; `failed` and `dropped`, if left out"),
    ] = None
    after: Annotated[str | None, Field(description="Those beyond this one: the `last_id` of the reply before")] = None

    @model_validator(mode="after")
    def _is_a_time(self) -> Self:
        if self.until is not None and self.until <= self.since:
            raise fault("must be later than 'since'", "until")
        return self


def parsed(raw: object, model: type[M]) -> M:
    """The request in a decoded body. Raises InvalidRequest that names the field."""
    if not isinstance(raw, Mapping):
        raise InvalidRequest("The body must be a JSON object.")
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise explain(error.errors(include_url=False), model) from None


def given(change: EndpointChange) -> dict[str, Any]:
    """What a change names. Raises InvalidRequest when that is nothing, or null."""
    named = {name: getattr(change, name) for name in change.model_fields_set}
    if not named:
        raise InvalidRequest("Name at least one field to change.")
    for name, value in named.items():
        if value is None:
            raise InvalidRequest(f"{name!r} must not be null; leave it out to keep it.", param=name)
    return named
