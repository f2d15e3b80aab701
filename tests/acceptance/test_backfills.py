"""Backfills of documents by the command line, over real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.acceptance.conftest import Running
from tests.acceptance.fakes import fake, parser
from tests.acceptance.until import until

pytestmark = pytest.mark.slow

ROOST = [sys.executable, "-P", "-m", "deploy.cli", "backfill"]
STEPS = ["--step", "parse:acme/parser", "--step", "chunk size=6 overlap=0", "--step", "encode:acme/quick"]
COUNT = 60


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    return start_stack(
        preload="acme/parser,acme/quick",
        models={
            "acme/parser": parser(page_seconds=0.03),
            "acme/slow": parser(page_seconds=1.0),
            "acme/quick": fake(),
        },
        backfill_in_flight=8,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "documents"
    found.mkdir()
    for n in range(COUNT):
        text = f"# Report {n}\n\nThe first page of number {n}.\f## Results\n\nThe second page of number {n}."
        (found / f"{n:03}.md").write_text(text, encoding="utf-8")
    return found


def started(running: Running, *words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOST_")}
    return subprocess.Popen(
        [*ROOST, *words],
        env={**environment, "ROOST_URL": running.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == status, (out, err)
    return out


def newest(running: Running) -> dict[str, Any]:
    found: list[dict[str, Any]] = running.client.get("/v1/backfills", params={"limit": 1}).json()["data"]
    return found[0] if found else {"counts": {"completed": -1}}


def parsed(running: Running) -> int:
    """How many jobs of the parser have ended, computed or not."""
    lines = running.client.get("/v1/usage").json()["data"]
    return sum(line["jobs"] for line in lines if line["model"] == "acme/parser")


def test_a_folder_is_worked_through_though_its_feeder_is_killed_and_not_again(
    running: Running, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    (folder / "bad.md").write_bytes(b"\xff\xfe\xff\x00")
    command = ["run", str(folder), *STEPS, "--out", str(out), "--json"]
    process = started(running, *command)
    until(lambda: newest(running)["counts"]["completed"] >= 10)
    assert newest(running)["status"] == "in_progress"
    feeder = running.part("feeder")
    feeder.kill()
    feeder.start()

    found = json.loads(ended(process, 1))

    assert (found["status"], found["counts"]) == (
        "completed",
        {"total": COUNT + 1, "completed": COUNT, "failed": 1, "skipped": 0},
    )
    rows = pq.read_table(out).to_pylist()
    assert found["rows"] == len(rows)
    assert [row["document"] for row in rows if row["chunk"] == 0] == [f"{n:03}.md" for n in range(COUNT)]
    assert len({(row["document"], row["chunk"]) for row in rows}) == len(rows)
    pages = {(row["page"], tuple(row["headings"])) for row in rows if row["document"] == "007.md"}
    assert pages == {(1, ("Report 7",)), (2, ("Report 7", "Results"))}
    assert all(len(row["dense"]) == 8 for row in rows)
    (failure,) = [json.loads(line) for line in Path(f"{out}.failures.jsonl").read_text().splitlines()]
    assert (failure["document"], failure["step"], failure["code"]) == ("bad.md", "parse", "unreadable_text")
    assert running.client.get("/v1/jobs", params={"tag": f"backfill:{found['id']}"}).json()["data"] == []
    # No document was parsed twice, whatever died.
    assert parsed(running) == COUNT

    (folder / "bad.md").write_text("now a text", encoding="utf-8")
    again = json.loads(ended(started(running, *command)))

    assert again["counts"] == {"total": COUNT + 1, "completed": 1, "failed": 0, "skipped": COUNT}
    assert pq.read_table(out).num_rows == len(rows) + 1
    assert parsed(running) == COUNT + 1
    assert not Path(f"{out}.failures.jsonl").exists()


def test_a_backfill_is_paused_resumed_and_cancelled_by_its_id(running: Running, folder: Path) -> None:
    id_ = ended(started(running, "run", str(folder), "--step", "parse:acme/slow", "--no-wait")).strip()
    assert ended(started(running, "pause", id_)).strip() == "paused"
    assert "paused" in ended(started(running, "status", id_))
    assert ended(started(running, "resume", id_)).strip() in {"validating", "in_progress"}
    assert ended(started(running, "cancel", id_)).strip() == "cancelling"

    until(lambda: newest(running)["status"] == "cancelled")

    refused = started(running, "pause", id_)
    _, told = refused.communicate(timeout=60)
    assert (refused.returncode, "backfill_ended" in told) == (1, True), told
