"""POST /v1/jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from api import prefer
from api.answers import Form, answer
from api.body import OFF_LOOP_BYTES, read_body
from api.compat.sie import jobs as sie
from api.compat.sie.caller import or_peer
from api.compat.sie.job_request import SieJobRequest, is_sie_job
from api.compat.sie.jobs import SieJob, SieSubmitted
from api.door import admit, key_of
from api.identity import tenant
from api.media import Media, media_of
from api.results import encoding_of
from api.route import PlainRoute, documented
from api.routes.replies import errors
from api.schemas import JobObject, JobWithResult
from api.services import services
from tasks.rendering import Encoding
from tasks.request import JobRequest

router = APIRouter(route_class=PlainRoute, tags=["jobs"])


def _signature(
    body: JobRequest | SieJobRequest,
    prefer: Annotated[
        str | None,
        Header(
            description="`wait=N`: answer with the result if it comes within N seconds. `respond-async`: do not wait."
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=256,
            description="Printable ASCII. A second request with the same key gets the first one's job.",
        ),
    ] = None,
    accept: Annotated[str | None, Header(description="application/json or application/msgpack")] = None,
    encoding: Annotated[Encoding, Query(description="How vectors are written in JSON")] = Encoding.FLOAT,
) -> None: ...


_BODIES = [{"$ref": f"#/components/schemas/{model.__name__}"} for model in (JobRequest, SieJobRequest)]
_WAITED = {"Preference-Applied": {"description": "The wait that was granted", "schema": {"type": "string"}}}
_LOCATED = {"Location": {"description": "The job's path", "schema": {"type": "string"}}}
_REPLAYED = {
    "Idempotent-Replayed": {"description": "`true` when the key led to an earlier job", "schema": {"type": "string"}}
}


@router.post(
    "/v1/jobs",
    summary="Submit a job",
    openapi_extra={
        "requestBody": {
            "content": {Media.MSGPACK.value: {"schema": {"anyOf": _BODIES, "title": "Body"}}},
        }
    },
    responses={
        200: {
            "model": JobWithResult | SieJob,
            "description": "The job ended within the wait, well or badly: look at its status",
            "headers": _LOCATED | _WAITED | _REPLAYED,
        },
        201: {"model": SieSubmitted, "description": "As 202, of a body with `operation`", "headers": _LOCATED},
        202: {
            "model": JobObject,
            "description": "The job is committed and will run",
            "headers": _LOCATED
            | _WAITED
            | _REPLAYED
            | {"Retry-After": {"description": "Seconds until a poll is worth it", "schema": {"type": "string"}}},
        },
        **errors(404, 406, 408, 409, 410, 413, 415, 422, 429, 503),
    },
)
@documented(_signature)
@or_peer(sie.submit)
async def submit(request: Request) -> Response:
    """Take in a job: one verb on one model, over one or more items.

    Without `Prefer: wait=N` the answer is 202 once the job is committed. An id that was told is never lost.

    A body with `operation` in place of `verb` is a job as `sie-sdk` submits it, and is answered as that reads it. With
    its header X-SIE-SDK-Version this path and the others of jobs speak its language only, errors included.
    """
    it = services(request)
    headers = request.headers
    asked = headers.getlist("prefer")
    wait = prefer.wait_of(asked, it.settings.max_wait_s)
    key = key_of(headers)
    form = Form(
        wait, media_of(headers.get("accept")), encoding_of(request.query_params.get("encoding")), request.receive
    )
    body = await read_body(request, it.settings.max_body_bytes)
    if is_sie_job(body.value):
        return await sie.take(request, body)
    job = await admit(it, body.value, caller=tenant(request), large=body.size > OFF_LOOP_BYTES, key=key)
    response = await answer(it, job, form)
    if asked:
        response.headers["preference-applied"] = prefer.applied(wait)
    return response
