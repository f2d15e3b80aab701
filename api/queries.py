"""Query parameters of routes that read their own: checked as a whole, unknown ones refused by name."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from tasks.errors import InvalidRequest
from tasks.request import explain

M = TypeVar("M", bound=BaseModel)


class NoQuery(BaseModel):
    """No parameter at all."""

    model_config = ConfigDict(extra="forbid")


def read_query(request: Request, model: type[M]) -> M:
    """The parameters as `model` reads them. Raises InvalidRequest for one that is unknown, twice there or not valid."""
    query = request.query_params
    for name in query:
        if len(query.getlist(name)) > 1:
            raise InvalidRequest(f"{name[:100]!r} must be given once.", param=name[:200])
    try:
        return model.model_validate(dict(query))
    except ValidationError as error:
        raise explain(error.errors(include_url=False), model) from None
