from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from click.testing import CliRunner

from deploy.commands.webhook_deliveries import moment, told
from deploy.commands.webhooks import health, webhooks

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90m", NOW - timedelta(minutes=90)),
        ("2h", NOW - timedelta(hours=2)),
        ("5d", NOW - timedelta(days=5)),
        ("2026-05-01T08:00:00Z", NOW - timedelta(hours=4)),
        ("2026-05-01T10:00:00+02:00", NOW - timedelta(hours=4)),
    ],
)
def test_a_time_is_written_out_or_as_so_long_ago(text: str, at: datetime) -> None:
    assert moment(text, NOW) == at


def test_a_time_without_a_zone_is_that_of_this_machine() -> None:
    found = moment("2026-05-01T08:00", NOW)
    assert found.tzinfo is not None
    assert found.replace(tzinfo=None) == datetime(2026, 5, 1, 8)  # noqa: DTZ001 - compared as it was written


@pytest.mark.parametrize("text", ["", "2x", "0h", "-2h", "yesterday"])
def test_what_is_no_time_is_told_with_what_would_be(text: str) -> None:
    with pytest.raises(click.BadParameter, match="2h for two hours ago"):
        moment(text, NOW)


@pytest.mark.parametrize(
    ("endpoint", "word"),
    [
        ({"status": "enabled", "failing_since": None}, "enabled"),
        ({"status": "enabled", "failing_since": "2026-05-01T00:00:00Z"}, "failing"),
        ({"status": "disabled", "failing_since": None, "disabled_why": "by its owner"}, "disabled: by its owner"),
    ],
)
def test_how_an_endpoint_does_is_told_in_a_word(endpoint: dict[str, Any], word: str) -> None:
    assert health(endpoint) == word


def test_what_came_of_a_delivery_is_told_by_its_last_attempt() -> None:
    failed = {"number": 1, "status": 500, "error": "status 500", "duration_ms": 3}
    worked = {"number": 2, "status": 204, "error": None, "duration_ms": 8}
    assert "roost sender" in told({"status": "pending", "tried": []})
    assert told({"status": "pending", "tried": [failed]}) == "status 500 (pending, attempt 1)"
    assert told({"status": "delivered", "tried": [failed, worked]}) == "delivered, 204 after 8 ms"


@pytest.mark.parametrize("words", [[], ["msg_1", "--webhook", "w"], ["--webhook", "w"], ["msg_1", "--since", "2h"]])
def test_what_to_redeliver_is_one_thing(words: list[str]) -> None:
    done = CliRunner().invoke(webhooks, ["redeliver", *words])
    assert done.exit_code == 2
    assert "Name one DELIVERY" in done.output
