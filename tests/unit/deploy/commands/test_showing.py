from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from deploy.commands.showing import age, lines, size, table

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_plain_rows_stand_under_one_another() -> None:
    assert lines([("a", 1, "x"), ("bcd", 23, "")]) == ["a    1   x", "bcd  23"]
    assert lines([]) == []


def test_a_table_shows_each_cell_as_it_is() -> None:
    console = Console(width=60, record=True, force_terminal=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(table(("name", "count"), [("[bold]x", 3), ("failed", 12)]))
        text = console.export_text()
    assert "[bold]x" in text
    assert "12" in text


@pytest.mark.parametrize(
    ("count", "said"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"), (5 * 2**20, "5 MiB"), (3 * 2**29, "1.5 GiB")],
)
def test_bytes_are_told_in_the_unit_that_fits(count: int | None, said: str) -> None:
    assert size(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (3 * 86400, "3d"), (-5, "0s")]
)
def test_ages_are_told_in_the_unit_that_fits(seconds: int, said: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == said
    assert age(None) == "-"
