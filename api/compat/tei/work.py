"""What a route of TEI does with a model, and which model: TEI's bodies name none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from api.body import OFF_LOOP_BYTES
from api.compat import calls
from api.compat.endpoints import Asked, Ended
from api.door import off_loop
from api.model_objects import find_model
from api.services import services
from catalog.errors import UnsupportedVerb
from catalog.schema import Spec
from tasks.errors import InvalidRequest
from tasks.items import Strict, fault


def _right(value: object) -> object:
    """TEI takes the word in lower and in upper case."""
    if isinstance(value, str) and value.lower() == "left":
        raise fault("is 'right' alone: a text is cut at its end")
    return value.lower() if isinstance(value, str) else value


class Cutting(Strict):
    """What happens to a text that is longer than the model reads."""

    truncate: Annotated[
        bool | None, Field(description="Cut it; left out or false, it is refused as TEI does without --auto-truncate")
    ] = None
    truncation_direction: Annotated[
        Literal["right"] | None, BeforeValidator(_right, json_schema_input_type=str | None)
    ] = None


@dataclass(frozen=True, slots=True)
class Work:
    """One of TEI's calls. `does` says in words what a model must do for it, `fits` whether one does.

    `to_job` makes a job of the model's name and a body, `to_reply` a reply of the job's end and the body. Both are pure
    and raise errors that name the field.
    """

    does: str
    fits: Callable[[Spec], bool]
    to_job: Callable[[str, Mapping[str, Any]], Asked]
    to_reply: Callable[[Ended, Mapping[str, Any]], list[Any]]


async def answer(request: Request, works_of: Callable[[Mapping[str, Any]], Sequence[Work]]) -> Response:
    """Run the first work that the model does. Raises as `chosen`, `calls.run` and the work itself do."""
    body, size = await calls.read_object(request)
    model, work = await chosen(request, works_of(body))
    asked = await off_loop(size > OFF_LOOP_BYTES, work.to_job, model, body)
    ended = await calls.run(request, asked, size=size)
    return await calls.replied(ended, lambda: work.to_reply(ended, body), size=size)


async def chosen(request: Request, works: Sequence[Work]) -> tuple[str, Work]:
    """The model of the path, or else the first of ROOST_TEI_MODELS that does one of the works, and which."""
    it = services(request)
    named: str | None = request.path_params.get("model")
    for name in it.settings.tei_model_names if named is None else (named,):
        spec = (await find_model(it, name)).spec
        for work in works:
            if work.fits(spec):
                return name, work
    does = " or ".join(work.does for work in works)
    if named is not None:
        raise UnsupportedVerb(f"Model {named!r} does not do this: it would have to {does}.", param="model")
    path = request.url.path.rstrip("/")
    raise InvalidRequest(
        f"No model is named: put it into the URL, as in /tei/<model>{path}, or have the operator list one that can "
        f"{does} in ROOST_TEI_MODELS.",
        param="model",
    )
