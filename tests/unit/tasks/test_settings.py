from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from engine.device import FakeDevice
from engine.errors import InvalidBudget
from engine.sizes import parse_budget, parse_reserve
from tasks.settings import LogLevel, Settings, complaint

_BUDGETS = ["8589934592", "8GiB", "8 GB", "512M", "1.5 gib", "10b", " 60% ", "100%", "0.5%"]
_NO_BUDGETS = ["lots", "", "150%", "0", "0%", "0.0 GiB", "-1", "8XB", "8 GiB more", "1e9", "nan%"]


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("budget", "lots", "60%"),
        ("budget", "150%", "100%"),
        ("device", "gpuu", "auto, cpu, cuda or cuda:N"),
        ("log_level", "loud", "'warning'"),
        ("broker_url", "http://x", "roost://"),
        ("broker_url", "roost://h/0;http://x", "roost://"),
        ("broker_url", "localhost", "roost://"),
        ("database_url", "mysql://me@h/d", "postgresql://"),
        ("database_url", "postgresql", "postgresql://"),
        ("notify_url", "amqp://h", "redis://"),
        ("port", "many", "integer"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_with_what_is_valid(name: str, value: str, valid: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({name: value})

    said = complaint(refused.value)
    assert said.startswith(f"ROOST_{name.upper()}")
    assert valid in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "cuda"),
        ("device", "cuda:3"),
        ("broker_url", "roosts://:word@h:1/0"),
        ("broker_url", "redis://h:1/0;rediss://h:2/0"),
        ("broker_url", "amqp://h//"),
        ("database_url", "postgres://h/d"),
        ("database_url", "postgresql+psycopg:///d?host=/run"),
        ("notify_url", "roost://h:1/0"),
    ],
)
def test_what_the_table_promises_is_taken(name: str, value: str) -> None:
    assert getattr(Settings.model_validate({name: value}), name) == value


@pytest.mark.parametrize("text", [*_BUDGETS, *_NO_BUDGETS])
def test_a_budget_is_taken_where_the_engine_takes_it(text: str) -> None:
    try:
        parse_budget(text, FakeDevice())
    except InvalidBudget:
        with pytest.raises(ValidationError):
            Settings(budget=text)
    else:
        assert Settings(budget=text).budget == text


@pytest.mark.parametrize("text", ["0", "0%", "5%", "2GiB", "-1", "nothing"])
def test_a_reserve_is_taken_where_the_engine_takes_it(text: str) -> None:
    try:
        parse_reserve(text, FakeDevice())
    except InvalidBudget:
        with pytest.raises(ValidationError):
            Settings(reserve=text)
    else:
        assert Settings(reserve=text).reserve == text


def test_words_may_be_written_in_capitals() -> None:
    settings = Settings.model_validate({"device": "CUDA:1", "log_level": "INFO"})

    assert (settings.device, settings.log_level) == ("cuda:1", LogLevel.INFO)


def test_a_wrong_address_is_told_without_its_password() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(database_url="mysql://me:s3cret@h/d")

    assert "s3cret" not in complaint(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "celery", "-A", "tasks.celery", "report"),
        ("-m", "uvicorn", "api.app:create", "--factory", "--port", "0"),
        ("-m", "deploy.health", "api"),
    ],
)
def test_a_process_ends_with_one_line_about_a_wrong_setting(command: tuple[str, ...]) -> None:
    environment = {**os.environ, "ROOST_BUDGET": "lots"}

    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert done.stderr.splitlines() == ["ROOST_BUDGET='lots' is no size: give bytes, 8GiB, or a share such as 60%"]
