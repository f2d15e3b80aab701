"""Tables and bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

_COLOURS = {
    "succeeded": "green",
    "delivered": "green",
    "resident": "green",
    "running": "yellow",
    "loading": "yellow",
    "failed": "red",
    "expired": "red",
    "cancelled": "dim",
    "dropped": "dim",
    "absent": "dim",
}

Row = Sequence[object]


def table(names: Sequence[str], rows: Iterable[Row], title: str | None = None) -> Table:
    """For a terminal; numbers to the right, states in colours."""
    rows = list(rows)
    found = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for place, name in enumerate(names):
        number = any(isinstance(row[place], int | float) for row in rows)
        found.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        found.add_row(*(Text(str(cell), style=_COLOURS.get(str(cell), "")) for cell in row))
    return found


def lines(rows: Iterable[Row]) -> list[str]:
    """The same without a terminal: a line for each row, its cells under one another."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def show(names: Sequence[str], rows: Sequence[Row]) -> None:
    """Print rows in the form that fits where they go."""
    console = Console()
    if console.is_terminal:
        console.print(table(names, rows))
    else:
        for line in lines(rows):
            click.echo(line)


def bars() -> Progress:
    """Bars of items done, on stderr; nothing is drawn where that is no terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
        # What a command prints goes to its own stdout, which may be a file while stderr is a terminal.
        redirect_stdout=False,
    )


def say(drawn: Progress, line: str) -> None:
    """Print a line on stdout while bars are drawn: above them, where both are on one terminal."""
    if drawn.disable or not sys.stdout.isatty():
        click.echo(line)
    else:
        drawn.console.print(Text(line))


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def age(then: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in the largest unit that fits."""
    if then is None:
        return "-"
    seconds = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def duration(seconds: float) -> str:
    """How long something takes, in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s"
