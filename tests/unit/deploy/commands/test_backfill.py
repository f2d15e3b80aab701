from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from deploy.commands.backfill import format_of, step_of, told
from deploy.commands.local_documents import found
from deploy.commands.showing import duration


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("parse:docling", {"step": "parse", "model": "docling"}),
        (
            "parse:docling:light pages=1-3 ocr=false",
            {"step": "parse", "model": "docling:light", "options": {"pages": "1-3", "ocr": False}},
        ),
        ("chunk", {"step": "chunk"}),
        ("chunk size=300 overlap=30", {"step": "chunk", "options": {"size": 300, "overlap": 30}}),
        ("generate:m prompt='Sum up: {text}'", {"step": "generate", "model": "m", "prompt": "Sum up: {text}"}),
        ("score:org/m query='two words'", {"step": "score", "model": "org/m", "query": "two words"}),
    ],
)
def test_a_step_is_read_from_one_argument(text: str, step: dict[str, Any]) -> None:
    assert step_of(text) == step


@pytest.mark.parametrize("text", ["chunk size", "chunk 'size=3"])
def test_a_step_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(click.BadParameter):
        step_of(text)


def test_rows_are_written_as_the_name_of_their_file_says() -> None:
    names = ["rows.jsonl", "ROWS.JSONL", "rows.ndjson", "rows.parquet"]
    assert [format_of(Path(name)) for name in names] == ["jsonl", "jsonl", "jsonl", "parquet"]
    assert format_of(None) == "jsonl"
    for name in ("rows.csv", "rows"):
        with pytest.raises(click.BadParameter, match="--format"):
            format_of(Path(name))


def test_where_a_backfill_stands_is_told_in_a_line() -> None:
    counts = {"total": 10, "completed": 3, "failed": 2, "skipped": 0}
    standing = {"status": "in_progress", "counts": counts, "per_second": 0.52, "seconds_left": 3725.0}

    assert told(standing) == "in_progress, 2 failed, 0.5/s, 1h 2m left"
    assert told(standing | {"per_second": None, "seconds_left": None}) == "in_progress, 2 failed"


@pytest.mark.parametrize(("seconds", "text"), [(4.4, "4s"), (61, "1m 1s"), (3600, "1h 0m")])
def test_durations_are_told_in_their_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_files_of_a_folder_are_named_by_their_path_within_and_hidden_ones_left_out(tmp_path: Path) -> None:
    for name in ("b.txt", "sub/a.txt", ".hidden", ".git/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")

    assert [one.name for one in found([tmp_path])] == ["b.txt", "sub/a.txt"]
    assert [one.name for one in found([tmp_path / "b.txt"])] == [(tmp_path / "b.txt").as_posix()]
    with pytest.raises(click.ClickException, match="no such file"):
        found([tmp_path / "none"])
    with pytest.raises(click.ClickException, match="would both be called"):
        found([tmp_path, tmp_path])
