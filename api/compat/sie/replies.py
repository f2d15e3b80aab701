"""What all replies of the peer's verbs share: the form, the times, what was used, the headers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from api.compat.calls import replied
from api.compat.endpoints import Ended
from api.compat.sie.caller import VERSION_HEADERS
from api.media import Media, media_of
from api.schemas import Reply
from tasks.jobs import Job

_UNITS: Mapping[str, str] = {
    "input_tokens": "x-sie-units-input-tokens",
    "pairs": "x-sie-units-pairs",
    "images": "x-sie-units-images",
    "pages": "x-sie-units-pages",
    "audio_ms": "x-sie-units-audio-ms",
    "prompt_tokens": "x-sie-units-input-tokens",
    "completion_tokens": "x-sie-units-output-tokens",
}
"""The header that tells each part of a usage."""


class SieTiming(Reply):
    """Milliseconds. Counting tokens is within `total_ms` and has no number of its own."""

    total_ms: float
    queue_ms: Annotated[float, Field(description="Until it was on the device, loading the model included")]
    inference_ms: float


class SieUsage(Reply):
    """What was read."""

    input_tokens: int | None = None
    pairs: int | None = None
    images: int | None = None
    pages: int | None = None
    audio_ms: int | None = None


class SieItemError(Reply):
    """Why one item failed."""

    code: str
    message: str


class SieFailedItem(SieItemError):
    """An item that has no place in the reply."""

    index: Annotated[int, Field(description="Its place in the request")]
    id: str | None = None


def timing(job: Job) -> dict[str, float]:
    """The times of a job in the peer's words."""
    told = job.timings or {}
    before = sum(told.get(part, 0.0) for part in ("queue_ms", "load_ms", "batch_wait_ms"))
    return {
        "total_ms": told.get("total_ms", 0.0),
        "queue_ms": round(before, 3),
        "inference_ms": told.get("device_ms", 0.0),
    }


def usage(job: Job, **more: int) -> dict[str, int]:
    """What a job has read. Where pages or sound are counted, those are the units and not tokens."""
    told = job.usage or {}
    found = {name: told[name] for name in ("images", "pages", "audio_ms") if name in told}
    if not found.keys() & {"pages", "audio_ms"}:
        found["input_tokens"] = told.get("tokens", 0)
    return {**found, **more}


async def reply(request: Request, ended: Ended, shape: Callable[[], object], used: Mapping[str, int]) -> Response:
    """What `shape` makes of a job's end, in the form of Accept, with the headers of a job that has run."""
    response = await replied(ended, shape, form(request))
    response.headers.update(headers(ended.job, used))
    return response


def form(request: Request) -> Media:
    """The form of the reply. Raises NotAcceptable."""
    return media_of(request.headers.get("accept"))


def headers(job: Job, used: Mapping[str, int]) -> dict[str, str]:
    """The peer's headers."""
    times = timing(job)
    found = {
        **VERSION_HEADERS,
        "x-sie-request-id": str(job.id),
        "x-sie-served-by": "local",
        "x-total-time": f"{times['total_ms']:.2f}",
        "x-queue-time": f"{times['queue_ms']:.2f}",
        "x-inference-time": f"{times['inference_ms']:.2f}",
    }
    if job.worker is not None:
        found["x-sie-worker"] = job.worker
    if job.revision is not None:
        found["x-sie-model-revision"] = job.revision
    for name, count in used.items():
        if name in _UNITS:
            found[_UNITS[name]] = str(count)
    return found
