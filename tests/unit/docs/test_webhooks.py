"""What docs/webhooks.md says of events, of the schedule and of signatures is what the code does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from catalog.loader import Catalog
from catalog.terms import Lane, Verb
from roost import verify
from tasks import batches, jobs
from tasks.backfills import backfill
from tasks.prepare import Limits, check
from tasks.request import parse_request
from tasks.settings import Settings
from tasks.webhooks import events, schedule, signing
from tasks.webhooks.endpoint import MOST_ENDPOINTS
from tasks.webhooks.guard import MAX_URL_CHARS

PAGE = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text(encoding="utf-8")
AT = datetime(2026, 5, 1, tzinfo=UTC)
UNITS = {"s": 1, "min": 60, "h": 3600}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def rows(head: str) -> list[list[str]]:
    """The cells of the table that begins with `head`."""
    table = PAGE.partition(head)[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def filled(kind: type, **given: Any) -> Any:
    """A row of which only that is there which events tell of."""
    return kind(**{field.name: None for field in fields(kind)} | given)


def sent() -> dict[str, dict[str, Any]]:
    """What is sent of one of each kind."""
    file, times = UUID(int=1), {"created_at": AT, "finished_at": AT}
    job = {"state": jobs.State.SUCCEEDED, "verb": Verb.ENCODE, "lane": Lane.BULK, "tags": ("a",), **times}
    batch = {"status": batches.Status.COMPLETED, "output_file": file, "error_file": file}
    whole = {"status": backfill.Status.COMPLETED, "output_file": file, "report_file": file}
    return {
        "job": events.of_job(filled(jobs.Job, id=file, **job)),
        "batch": events.of_batch(filled(batches.Batch, id=file, **batch)),
        "backfill": events.of_backfill(filled(backfill.Backfill, id=file, **whole)),
    }


def test_every_event_is_listed_and_no_other() -> None:
    listed = {name for row in rows("| event |") for name in re.findall(r"`(\w+\.\w+)`", row[0])}
    assert listed == set(events.TYPES)


@pytest.mark.parametrize("kind", ["job", "batch", "backfill"])
def test_the_events_that_are_shown_have_the_fields_that_are_sent(kind: str) -> None:
    (shown,) = [one for one in map(json.loads, blocks("json")) if one.get("type", "").startswith(f"{kind}.")]
    real = json.loads(events.payload(shown["type"], AT, sent()[kind]))
    assert list(shown) == list(real)
    assert list(shown["data"]) == list(real["data"])
    assert list(shown["data"]["urls"]) == list(real["data"]["urls"])
    assert shown["type"] in events.TYPES


def test_the_schedule_is_the_one_that_is_kept() -> None:
    told = [0 if after == "at once" else _seconds(after) for _, after in rows("| attempt | after")]
    assert tuple(told) == schedule.DELAYS_S
    assert (schedule.FAILING_FOR.days, schedule.MOST_RETRY_AFTER.days, schedule.JITTER) == (5, 1, 0.2)


def _seconds(text: str) -> int:
    number, unit = text.split()
    return int(number) * UNITS[unit]


def test_the_states_and_limits_are_those_of_the_code() -> None:
    assert [row[0].strip("`") for row in rows("| status | meaning |")] == [state.value for state in schedule.State]
    told = dict(rows("| limit | |"))
    assert int(told["endpoints of a tenant"]) == MOST_ENDPOINTS
    assert told["length of a URL"] == f"{MAX_URL_CHARS:,} characters"
    assert told["a result that goes along"] == f"{events.MOST_INLINE_BYTES // 1024} KiB"


def test_the_job_that_is_shown_is_accepted() -> None:
    (job,) = [one for one in map(json.loads, blocks("json")) if "verb" in one]
    settings = Settings()
    check(parse_request(job, settings.max_items), Catalog.load(), Limits.of(settings))
    signing.parsed_secret(job["webhook"]["secret"])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_what_the_shell_computes_is_the_signature(tmp_path: Path) -> None:
    secret, at, body = signing.new_secret(), datetime.now(UTC), b'{"type":"webhook.test","data":{}}'
    headers = signing.headers(UUID(int=7), at, body, [secret])
    (tmp_path / "body.json").write_bytes(body)
    given = {
        "secret": signing.shown_secret(secret),
        "id": headers["webhook-id"],
        "timestamp": headers["webhook-timestamp"],
    }
    (script,) = blocks("sh")
    told = f'{script}printf "v1,%s" "$signature"\n'
    done = subprocess.run(
        ["sh", "-euc", told], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", **given}, capture_output=True, text=True
    )
    assert done.stdout == headers["webhook-signature"], done.stderr
    assert verify({**headers, "webhook-signature": done.stdout}, body, given["secret"])["type"] == "webhook.test"
