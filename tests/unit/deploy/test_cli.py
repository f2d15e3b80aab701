from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.cli import main
from deploy.embedded import lock


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_DATA_DIR", str(tmp_path))
    return tmp_path


def test_config_lists_every_setting_for_programs_without_secrets(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_DATABASE_URL", "postgresql+psycopg://me:s3cret@db/roost")

    done = CliRunner().invoke(main, ["config", "--json"])

    rows = json.loads(done.output)
    assert rows["ROOST_DATABASE_URL"] == {
        "value": "postgresql+psycopg://me:***@db/roost",
        "source": "environment",
    }
    assert rows["ROOST_PORT"] == {"value": "8080", "source": "default"}
    assert "s3cret" not in done.output


def test_config_tells_people_what_each_setting_is(data_dir: Path) -> None:
    done = CliRunner().invoke(main, ["config"])

    assert "Port of the API" in done.output


def test_a_setting_that_is_no_good_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_PORT", "many")

    done = CliRunner().invoke(main, ["config"])

    assert done.exit_code == 1
    assert "ROOST_PORT" in done.output


def test_status_of_an_empty_folder_is_told_and_is_no_success(data_dir: Path) -> None:
    done = CliRunner().invoke(main, ["status"])

    assert (done.exit_code, done.output) == (3, f"nothing runs in {data_dir}\n")


def test_status_for_programs_says_that_nothing_runs(data_dir: Path) -> None:
    done = CliRunner().invoke(main, ["status", "--json"])

    assert json.loads(done.output) == {"running": False}


def test_down_without_a_stack_is_no_error(data_dir: Path) -> None:
    done = CliRunner().invoke(main, ["down"])

    assert (done.exit_code, done.output) == (0, f"nothing runs in {data_dir}\n")


def test_up_refuses_a_folder_that_another_stack_holds(data_dir: Path) -> None:
    with lock.held(data_dir / "roost.lock"):
        done = CliRunner().invoke(main, ["up"])

    assert done.exit_code == 1
    assert "already runs" in done.output


def test_up_refuses_to_open_flower_to_the_network(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_FLOWER_HOST", "0.0.0.0")

    done = CliRunner().invoke(main, ["up"])

    assert done.exit_code == 1
    assert "ROOST_FLOWER_AUTH" in done.output


def test_up_refuses_a_broker_that_cannot_wake_waiters(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_BROKER_URL", "amqp://localhost//")

    done = CliRunner().invoke(main, ["up"])

    assert done.exit_code == 1
    assert "ROOST_NOTIFY_URL" in done.output


def test_migrate_asks_for_a_database(data_dir: Path) -> None:
    done = CliRunner().invoke(main, ["migrate"])

    assert done.exit_code == 1
    assert "ROOST_DATABASE_URL" in done.output


def test_a_misspelt_variable_is_warned_of(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_PROT", "8081")

    done = CliRunner().invoke(main, ["config"])

    assert done.exit_code == 0
    assert "WARNING: ROOST_PROT is no setting and does nothing: did you mean ROOST_PORT?" in done.output


@pytest.mark.parametrize("command", ["up", "worker"])
def test_a_model_to_preload_that_is_not_in_the_catalog_is_refused(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("ROOST_PRELOAD", "no/such")

    done = CliRunner().invoke(main, [command])

    assert done.exit_code == 1
    assert "Error: ROOST_PRELOAD: Model 'no/such' is not in the catalog." in done.output


def test_up_prints_which_files_it_left_out_of_the_catalog(
    data_dir: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("models")
    (folder / "bad.yaml").write_text("id: [")
    monkeypatch.setenv("ROOST_CATALOG", str(folder))

    with lock.held(data_dir / "roost.lock"):
        done = CliRunner().invoke(main, ["up"])

    assert f"left out of the catalog: {folder}/bad.yaml: " in done.output
