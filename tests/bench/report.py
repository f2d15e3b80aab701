"""A run as data, as JSON and as a table. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import orjson

from tests.bench.figures import Row, Target
from tests.bench.machine import Machine

HEADS = ("what", "median", "min-max", "unit", "target", "")


@dataclass(frozen=True, slots=True)
class Section:
    """One case: its rows, what it says about the method, and CPU microseconds a job by process part."""

    name: str
    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    cpu_us: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    failed: str = ""
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a run found."""

    machine: Machine
    rounds: int
    quick: bool
    settings: Mapping[str, str]
    sections: tuple[Section, ...]
    load_after: tuple[float, float, float]
    seconds: float


def as_json(report: Report) -> bytes:
    """The whole report; `reached` is true, false, or null where there is no target."""
    body = asdict(report)
    for section, plain in zip(report.sections, body["sections"], strict=True):
        for row, flat in zip(section.rows, plain["rows"], strict=True):
            flat["reached"] = row.reached
    return orjson.dumps(body, option=orjson.OPT_INDENT_2)


def as_text(report: Report) -> str:
    """The report for people: valid Markdown that also reads as plain text."""
    machine = report.machine
    lines = [
        f"Roost benchmark, {machine.date}, commit {machine.commit or 'unknown'}",
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib:g} GiB, {machine.system}, Python {machine.python}",
        ", ".join(f"{name} {version}" for name, version in machine.packages.items()),
        _run_line(report),
    ]
    if report.settings:
        lines.append("settings: " + ", ".join(f"{name}={value}" for name, value in report.settings.items()))
    for section in report.sections:
        lines += ["", f"## {section.name}: {section.title}", ""]
        if section.failed:
            lines += [f"FAILED: {section.failed}", ""]
        if section.rows:
            lines += _wide(section.rows) if section.wide else table(HEADS, [_cells(row) for row in section.rows])
        if section.cpu_us:
            lines += ["", *_cpu_table(section.cpu_us)]
        if section.notes:
            lines += ["", *(f"- {note}" for note in section.notes)]
    return "\n".join(lines) + "\n"


def _run_line(report: Report) -> str:
    before, after = _load(report.machine.load_average), _load(report.load_after)
    rounds = f"{report.rounds} round" + "s" * (report.rounds != 1) + ", quick" * report.quick
    return f"load average {before} before, {after} after; {rounds}; {report.seconds:.0f} s"


def _cpu_table(cpu_us: Mapping[str, Mapping[str, float]]) -> list[str]:
    """CPU microseconds a job, a row for each load and a column for each part."""
    parts = list(dict.fromkeys(part for spent in cpu_us.values() for part in spent))
    rows = [(load, *(number(spent.get(part, 0.0)) for part in parts)) for load, spent in cpu_us.items()]
    return table(("CPU µs a job", *parts), rows)


def _wide(rows: Sequence[Row]) -> list[str]:
    """A line for each subject of rows called `subject: figure`, a column for each figure; medians and verdicts."""
    lines: dict[str, dict[str, Row]] = {}
    for row in rows:
        subject, _, figure = row.what.partition(": ")
        lines.setdefault(subject, {})[f"{figure}, {row.unit}"] = row
    heads = list(dict.fromkeys(figure for line in lines.values() for figure in line))
    cells = []
    for subject, line in lines.items():
        numbers = [number(line[figure].median) if figure in line else "" for figure in heads]
        targets = [f"{target_text(row.target)}: {verdict(row.reached)}" for row in line.values() if row.target]
        cells.append((subject, *numbers, "; ".join(targets)))
    return table(("what", *heads, ""), cells)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table whose columns are padded to line up."""
    cells = [list(heads), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return lines


def _cells(row: Row) -> tuple[str, ...]:
    spread = "" if row.rounds < 2 else f"{number(row.low)}-{number(row.high)}"
    return row.what, number(row.median), spread, row.unit, target_text(row.target), verdict(row.reached)


def verdict(reached: bool | None) -> str:
    """The words for a row."""
    return "" if reached is None else "reached" if reached else "not reached"


def target_text(target: Target | None) -> str:
    """The target as it is printed."""
    if target is None:
        return ""
    return f"{target.sense} {number(target.value)}" + f" ({target.source})" * bool(target.source)


def number(value: float) -> str:
    """Three significant digits, no more than a measurement carries, and thousands set apart."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        digits = 3 - len(str(int(abs(value))))
        return f"{round(value, digits):,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _load(average: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in average)
