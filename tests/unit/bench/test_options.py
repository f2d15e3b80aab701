from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.__main__ import parse


def test_a_full_run_takes_the_median_of_three_rounds() -> None:
    assert parse([]).rounds == 3


def test_a_quick_run_takes_one_round_unless_told() -> None:
    assert parse(["--quick"]).rounds == 1
    assert parse(["--quick", "--rounds", "2"]).rounds == 2


def test_everything_runs_unless_something_is_named() -> None:
    assert parse([]).wants("sync")
    assert parse(["--only", "cold", "--only", "sync"]).wants("sync")
    assert not parse(["--only", "cold"]).wants("sync")


def test_a_profiled_case_runs_alone() -> None:
    options = parse(["--profile", "jobs"])
    assert options.wants("jobs")
    assert not options.wants("sync")


def test_settings_of_the_stack_are_passed_on() -> None:
    assert parse(["--set", "ROOST_EVENTS=off", "--set", "ROOST_BUDGET=8=9"]).settings == {
        "ROOST_EVENTS": "off",
        "ROOST_BUDGET": "8=9",
    }


@pytest.mark.parametrize("words", [["--only", "speed"], ["--set", "EVENTS=off"], ["--set", "ROOST_EVENTS"]])
def test_a_wrong_option_ends_with_a_message(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert words[1] in capsys.readouterr().err


def test_the_json_goes_where_it_is_told() -> None:
    assert parse(["--out", "a/b.json"]).out == Path("a/b.json")
