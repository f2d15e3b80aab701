"""Times as callers may write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.items import Strict
from tasks.moments import Moment


class Asked(Strict):
    since: Moment


NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-12-01T12:00:00Z", "2026-12-01t12:00:00.000z", "2026-12-01T14:00:00+02:00", "2026-12-01 12:00Z"]
)
def test_a_time_with_its_zone_is_taken(text: str) -> None:
    assert Asked.model_validate({"since": text}).since == NOON
    assert Asked.model_validate({"since": NOON}).since == NOON


@pytest.mark.parametrize(
    "value", ["0.5", "1764590400", 1764590400, 0.5, "2026-12-01", "2026-12-01T12:00:00", "noon", "", None, True]
)
def test_numbers_and_times_without_a_zone_are_none(value: Any) -> None:
    with pytest.raises(ValidationError, match="with its zone"):
        Asked.model_validate({"since": value})
