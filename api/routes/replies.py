"""The error replies of a route, for OpenAPI."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from api.schemas import ErrorReply

_TEXT = {
    400: "A field is not valid; `param` names it",
    403: "The operator has not allowed the model what it needs",
    404: "There is no such thing",
    406: "The reply cannot be had in the form of Accept",
    408: "No byte of the body came for too long",
    409: "The job is not in the state that this needs",
    410: "The retention has ended, or the result is kept no more",
    413: "A limit is exceeded; the message names it",
    415: "The body is neither plain JSON nor msgpack",
    422: "A field is not valid; `param` names it",
    424: "The model cannot do it",
    429: "Too much at once; come again after Retry-After",
    500: "The service failed",
    502: "The model could not be had",
    503: "A part of the service is away; come again after Retry-After",
    504: "It took longer than allowed",
}

RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}


def errors(*statuses: int, model: type[BaseModel] = ErrorReply) -> dict[int | str, dict[str, Any]]:
    """The entries of `responses` for these statuses, and for 500, which any route may give; `model` is their body."""
    return {
        status: {
            "model": model,
            "description": _TEXT[status],
            **({"headers": RETRY_AFTER} if status in {429, 503} else {}),
        }
        for status in (*statuses, 500)
    }
