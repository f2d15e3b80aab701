"""Bodies of other services' requests, checked for shape."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError

from tasks.errors import InvalidRequest
from tasks.items import fault
from tasks.request import explain

M = TypeVar("M", bound=BaseModel)


def shaped(kind: type[M], body: object) -> M:
    """The body as `kind`. Raises InvalidRequest, which names the field and the nearest one for an unknown name."""
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.")
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise explain(error.errors(include_url=False)) from None


def untaken(why: str) -> BeforeValidator:
    """For a field of type None that the other service has and this one does not: refused, and told why."""

    def check(value: object) -> object:
        if value is not None:
            raise fault(f"is not taken: {why}")
        return value

    return BeforeValidator(check)
