"""Running the peer's verbs: one route class with its errors, and why a model could not be loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Header, Path
from starlette.requests import Request
from starlette.responses import Response

from api.body import OFF_LOOP_BYTES, read_body
from api.compat import calls
from api.compat.dialect import Failure, route_class
from api.compat.endpoints import Asked, Ended
from api.compat.sie import errors
from api.compat.sie.caller import VERSION_HEADERS
from api.compat.sie.grammars import has_grammar
from api.compat.sie.models import last_error
from api.compat.sie.pools import check_place
from api.door import off_loop
from api.media import Media
from api.model_objects import holders
from api.services import services
from catalog.errors import CatalogError, RoostError
from tasks.errors import BrokerUnavailable, InvalidRequest

ERRORS = errors.errors(403, 404, 406, 408, 409, 413, 415, 502, 503, 504)
"""Those of a route that runs a job."""

MSGPACK_TOO: dict[str, dict[str, Any]] = {Media.MSGPACK.value: {}}

Model = Annotated[
    str,
    Path(
        pattern=r"^[!-~]+$",
        description="An id of the catalog, `:profile` after it or not; `__` will do for its slash",
    ),
]
Accept = Annotated[str | None, Header(description="application/json or application/msgpack")]


def render(request: Request, failure: Failure) -> Response:
    """The reply to what failed, with what is known of a load."""
    response = errors.render(request, failure, getattr(request.state, "load_failure", None))
    response.headers.update(VERSION_HEADERS)
    if failure.job_id is not None:
        response.headers["x-sie-request-id"] = failure.job_id
    return response


Route = route_class(render)


async def read(
    request: Request, to_job: Callable[[str, Mapping[str, Any]], Asked]
) -> tuple[dict[str, Any], int, Asked]:
    """A body, its size and what it asks for. Raises as `check_place` does for a place that there is not."""
    await check_place(services(request), request.headers)
    body = await read_body(request, services(request).settings.max_body_bytes)
    if not isinstance(body.value, dict):
        raise InvalidRequest("The body must be an object.", param="body")
    model: str = request.path_params["model"]
    slow = body.size > OFF_LOOP_BYTES or has_grammar(body.value)
    return body.value, body.size, await off_loop(slow, to_job, model, body.value)


async def run(request: Request, asked: Asked, size: int) -> Ended:
    """Run the job and wait for it; the error of a failed load is told with what workers say of it."""
    try:
        return await calls.run(request, asked, size=size)
    except RoostError as error:
        await note_load(request, asked, error)
        raise


async def note_load(request: Request, asked: Asked, error: RoostError) -> None:
    """Keep what is known of a failed load for the reply."""
    if (kind := errors.load_class(error.code)) is not None:
        request.state.load_failure = {
            "param": "model",
            "error_class": kind,
            "attempts": await _attempts(request, str(asked.raw["model"])),
            "permanent": not error.retryable,
        }


async def _attempts(request: Request, model: str) -> int:
    it = services(request)
    try:
        choice = it.catalog.look_up(model)
        here = [one for _, one in holders(choice.spec, await it.presence.live()) if one.get("key") == choice.key]
    except (CatalogError, BrokerUnavailable):
        here = []
    told = last_error(here)
    return 1 if told is None else int(told["attempts"])
