from __future__ import annotations

import dataclasses

import orjson
import pytest

from tests.bench.figures import Reading, at_least, at_most, rows_of
from tests.bench.machine import Machine
from tests.bench.report import Report, Section, as_json, as_text, number


@pytest.fixture
def report() -> Report:
    rounds = [
        [Reading("requests", 430.0, "/s", at_least(427.5, "1.5 x peer")), Reading("wait p99", 12.0, "ms", at_most(10))],
        [Reading("requests", 450.0, "/s", at_least(427.5, "1.5 x peer")), Reading("wait p99", 14.0, "ms", at_most(10))],
    ]
    section = Section(
        name="sync",
        title="one item a request",
        rows=tuple(rows_of("sync", rounds)),
        notes=("durable",),
        cpu_us={"32 clients": {"api": 812.4, "child": 200.0}},
    )
    machine = Machine(
        "Some CPU", 2, 24.0, "Linux 6 x86_64", "3.11.2", {"celery": "5.7.0"}, "abc", "2026-01-01", (0.1, 0.2, 0.3)
    )
    return Report(machine, 2, True, {"ROOST_EVENTS": "off"}, (section,), (1.0, 0.5, 0.3), 61.0)


def test_json_tells_for_each_row_whether_its_target_is_reached(report: Report) -> None:
    rows = orjson.loads(as_json(report))["sections"][0]["rows"]
    assert [(row["what"], row["median"], row["reached"]) for row in rows] == [
        ("requests", 440.0, True),
        ("wait p99", 13.0, False),
    ]


def test_json_names_the_machine_and_its_load(report: Report) -> None:
    body = orjson.loads(as_json(report))
    assert body["machine"]["cpu"] == "Some CPU"
    assert body["machine"]["load_average"] == [0.1, 0.2, 0.3]


def test_text_puts_the_verdict_beside_target_and_spread(report: Report) -> None:
    lines = as_text(report).splitlines()
    (line,) = [line for line in lines if line.startswith("| requests")]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "requests",
        "440",
        "430-450",
        "/s",
        "≥ 428 (1.5 x peer)",
        "reached",
    ]


def test_text_says_not_reached(report: Report) -> None:
    (line,) = [line for line in as_text(report).splitlines() if line.startswith("| wait p99")]
    assert line.rstrip("| ").endswith("not reached")


def test_text_lines_tables_up(report: Report) -> None:
    widths = {len(line) for line in as_text(report).splitlines() if line.startswith(("| what", "| requests", "| wait"))}
    assert len(widths) == 1


def test_text_shows_the_processor_time_of_each_part(report: Report) -> None:
    text = as_text(report)
    assert "| 32 clients" in text
    assert "812" in text


def test_text_shows_settings_that_are_not_the_defaults(report: Report) -> None:
    assert "settings: ROOST_EVENTS=off" in as_text(report)


def test_a_case_that_failed_is_shown_with_its_reason(report: Report) -> None:
    broken = dataclasses.replace(report, sections=(Section("cold", "a cold model", (), failed="HTTP 500"),))
    assert "FAILED: HTTP 500" in as_text(broken)


def test_a_wide_section_has_a_line_for_each_subject(report: Report) -> None:
    readings = [
        Reading("owls: in batches", 20.0, "items/s"),
        Reading("owls: gain", 1.05, "times", at_least(1.1)),
        Reading("crows: in batches", 30.0, "items/s"),
    ]
    wide = Section("birds", "birds", tuple(rows_of("birds", [readings])), wide=True)
    lines = as_text(dataclasses.replace(report, sections=(wide,))).splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert table == [
        ["what", "in batches, items/s", "gain, times", ""],
        ["owls", "20", "1.05", "≥ 1.1: not reached"],
        ["crows", "30", "", ""],
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.8449, "0.845"), (12.34, "12.3"), (123.4, "123"), (1234.5, "1,230"), (98_765.0, "98,800")],
)
def test_numbers_carry_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown
