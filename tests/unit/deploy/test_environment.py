from __future__ import annotations

from pathlib import Path

import pytest

from deploy.environment import exported, masked, merged, shown, unknown
from tasks.settings import EventsMode, Settings


def _settings(**values: object) -> Settings:
    return Settings.model_validate(values)


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("database_url", "postgresql+psycopg://me:s3cret@db:5432/roost", "postgresql+psycopg://me:***@db:5432/roost"),
        (
            "database_url",
            "postgresql+psycopg:///roost?user=me&password=s3cret",
            "postgresql+psycopg:///roost?user=me&password=***",
        ),
        ("broker_url", "roost://:s3cret@h:1/0;redis://u:s3cret@h:2/0", "roost://:***@h:1/0;redis://u:***@h:2/0"),
        ("broker_url", "redis://u:s3@cret@h/0", "redis://u:***@h/0"),
        ("notify_url", "redis://h:6379/1", "redis://h:6379/1"),
        ("flower_auth", "me:s3cret", "me:***"),
        ("flower_auth", "", ""),
        ("host", "0.0.0.0", "0.0.0.0"),
    ],
)
def test_a_shown_value_holds_no_secret(name: str, value: str, seen: str) -> None:
    assert masked(name, value) == seen


def test_each_setting_is_shown_with_the_place_it_comes_from() -> None:
    rows = {row.variable: row for row in shown(_settings(port=9000), {"ROOST_PORT": "never"})}

    assert (rows["ROOST_PORT"].value, rows["ROOST_PORT"].source) == ("9000", "environment")
    assert (rows["ROOST_HOST"].value, rows["ROOST_HOST"].source) == ("127.0.0.1", "default")
    assert len(rows) == len(Settings.model_fields)


def test_a_server_that_the_stack_runs_is_named_as_the_source() -> None:
    rows = {row.variable: row for row in shown(_settings(), {"broker_url": "started here"})}

    assert rows["ROOST_BROKER_URL"].source == "started here"


def test_what_was_given_is_exported_and_defaults_are_not() -> None:
    values = exported(_settings(port=9000, events="off", data_dir="/var/lib/roost"))

    assert values == {"ROOST_PORT": "9000", "ROOST_EVENTS": "off", "ROOST_DATA_DIR": "/var/lib/roost"}


def test_relative_folders_leave_as_absolute_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    values = exported(_settings(data_dir="here", catalog="mine:/opt/theirs"))

    assert values == {"ROOST_DATA_DIR": f"{tmp_path}/here", "ROOST_CATALOG": f"{tmp_path}/mine:/opt/theirs"}


def test_exported_settings_read_back_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = _settings(port=9000, events=EventsMode.OFF, budget="2GiB", data_dir="/d", batch_limit_s=1.5)
    for name, value in exported(settings).items():
        monkeypatch.setenv(name, value)

    assert Settings() == settings


def test_an_environment_keeps_foreign_variables_and_drops_our_old_ones() -> None:
    environment = merged({"PATH": "/bin", "ROOST_PORT": "1", "ROOST_HOST": "h"}, _settings(port=2, data_dir="/d"))

    assert environment == {"PATH": "/bin", "ROOST_PORT": "2", "ROOST_DATA_DIR": "/d"}


def test_a_variable_that_no_setting_reads_is_told_with_the_nearest_one() -> None:
    assert unknown({"ROOST_PROT": "1", "ROOST_PORT": "2", "roost_host": "h", "HOME": "/", "ROOST_VERSION": "1"}) == [
        "ROOST_PROT is no setting and does nothing: did you mean ROOST_PORT?"
    ]


def test_a_variable_like_no_setting_is_told_where_to_look() -> None:
    (line,) = unknown({"ROOST_ZZZZZZ": "1"})

    assert line.endswith("`roost config` lists those there are")
