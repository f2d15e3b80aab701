"""What Cohere's clients are told beside an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.schemas import Reply


class ApiVersion(Reply):
    """Whose replies these are."""

    version: str


class BilledUnits(Reply):
    """What was read, under the name that Cohere's clients have for it."""

    input_tokens: int


class CohereMeta(Reply):
    """What Cohere's clients are told beside an answer."""

    api_version: ApiVersion
    billed_units: BilledUnits


def tokens_of(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many tokens the model read for these rows, none of which has failed."""
    return sum(row["tokens"] for row in rows)


def meta(version: str, tokens: int) -> dict[str, Any]:
    """A `CohereMeta`."""
    return {"api_version": {"version": version}, "billed_units": {"input_tokens": tokens}}
