"""GET /v1/jobs/{id}/result: as often as you like, until the retention ends; once, of a job that is not kept."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from api.answers import End, error_of, read_end, result_of
from api.body import OFF_LOOP_BYTES
from api.door import off_loop
from api.errors import envelope, headers_of, status_of
from api.forgetting import once
from api.identity import tenant
from api.media import Media, dumps, media_of
from api.moves import job_id
from api.route import KeyedRoute
from api.routes.jobs import JobId
from api.routes.replies import errors
from api.schemas import ErrorReply, FailedResult, ResultObject
from api.services import Services, services
from tasks.jobs import State
from tasks.rendering import Encoding

router = APIRouter(route_class=KeyedRoute, tags=["jobs"])


@router.get(
    "/v1/jobs/{id}/result",
    summary="Get a job's result",
    response_model=ResultObject,
    responses={
        **errors(404, 406, 410, 422, 429, 503),
        409: {"model": FailedResult | ErrorReply, "description": "The job has not ended, or was cancelled"},
        422: {"model": FailedResult | ErrorReply, "description": "Every item failed, or a parameter is not valid"},
        500: {"model": FailedResult, "description": "The model failed"},
        502: {"model": FailedResult, "description": "The model could not be loaded"},
        504: {"model": FailedResult, "description": "The deadline or the time limit has passed"},
        200: {"content": {Media.MSGPACK.value: {"schema": {"type": "string", "format": "binary"}}}},
    },
)
async def result(
    request: Request,
    id: JobId,  # noqa: A002 - the name in the path
    encoding: Annotated[Encoding, Query(description="How vectors are written in JSON")] = Encoding.FLOAT,
    accept: Annotated[str | None, Header(description="application/json or application/msgpack")] = None,
) -> Response:
    """The outcome of every item, in the order of the request; the job's error if it did not succeed.

    msgpack carries the bytes of vectors as they are stored, which is the fastest way to get them.
    """
    media = media_of(accept)
    it = services(request)
    end = await read_end(it, job_id(id), tenant(request))
    large = len(end.result or b"") > OFF_LOOP_BYTES
    return once(it, end.job, await off_loop(large, _reply, it, end, media, encoding))


def _reply(it: Services, end: End, media: Media, encoding: Encoding) -> Response:
    body = result_of(it, end, media, encoding)
    job = end.job
    if job.state is State.SUCCEEDED and body is not None:
        return Response(dumps(body, media), media_type=media.value)
    error = error_of(job)
    status = status_of(error["code"])
    failed = {
        **envelope(error, job_id=str(job.id)),
        "id": str(job.id),
        "status": job.state.value,
        "items": None if body is None else body["items"],
    }
    return Response(dumps(failed, media), status_code=status, media_type=media.value, headers=headers_of(status))
