"""docs/operations.md holds the same settings as tasks.settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.settings_table import END, START, placed
from tasks.settings import Settings


@pytest.fixture(scope="module")
def page() -> str:
    return (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rows(page: str) -> dict[str, tuple[str, str]]:
    table = page.partition(START)[2].partition(END)[0]
    found = re.findall(r"^\| `(ROOST_\w+)` \| (.*?) \| (.*) \|$", table, re.MULTILINE)
    return {name: (default, description) for name, default, description in found}


def test_every_setting_is_in_the_table_and_no_other(rows: dict[str, tuple[str, str]]) -> None:
    assert list(rows) == [f"ROOST_{name.upper()}" for name in Settings.model_fields]


def test_the_table_is_the_one_the_code_gives(page: str) -> None:
    assert placed(page) == page, "run: python -m deploy.settings_table"


def test_every_setting_says_what_it_is(rows: dict[str, tuple[str, str]]) -> None:
    assert [name for name, (_, description) in rows.items() if not description] == []


def test_a_default_of_the_table_given_as_a_variable_is_the_default(
    rows: dict[str, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in rows:
        monkeypatch.delenv(name, raising=False)
    untouched = Settings()
    for name, (default, _) in rows.items():
        monkeypatch.setenv(name, "" if default == "empty" else default.strip("`"))
    assert Settings() == untouched
