"""Bodies of other services' requests, checked for shape."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from tasks.errors import InvalidRequest
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
