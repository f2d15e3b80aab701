"""A stored result as its callers see it: JSON with lists of numbers or base64, or msgpack with the bytes themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.media import Media
from tasks.errors import InvalidRequest
from tasks.rendering import Encoding, json_rows
from tasks.results import unpack_rows


def result_object(
    job_id: str,
    status: str,
    model: str,
    usage: Mapping[str, int] | None,
    rows: list[dict[str, Any]],
    scores: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The body of a result reply. `scores` is the ranking of a score, and of no other job."""
    ranking = {} if scores is None else {"scores": scores}
    return {
        "id": job_id,
        "object": "result",
        "status": status,
        "model": model,
        "items": rows,
        **ranking,
        "usage": usage,
    }


def rows_of(result: bytes, media: Media, encoding: Encoding) -> list[dict[str, Any]]:
    """One map per item, in the order of the request, ready for the writer of `media`."""
    rows = unpack_rows(result)
    return json_rows(rows, encoding) if media is Media.JSON else rows


def encoding_of(text: str | None) -> Encoding:
    """The encoding that a caller asked for. Raises InvalidRequest."""
    if text is None:
        return Encoding.FLOAT
    try:
        return Encoding(text)
    except ValueError:
        raise InvalidRequest("'encoding' must be 'float' or 'base64'.", param="encoding") from None
