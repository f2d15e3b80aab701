"""`roost models`, as people and programs call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from catalog.weights import Locator
from deploy.cli import main
from tests.small import folder

OWL = "id: acme/owl\nfamily: {family}\ntasks: {{encode: {{dims: 8}}}}\nparameters: 0\nmax_length: 16\n{more}"


@pytest.fixture
def yamls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "yamls").mkdir()
    monkeypatch.setenv("ROOST_CATALOG", str(tmp_path / "yamls"))
    return tmp_path / "yamls"


def write(yamls: Path, family: str = "fake", more: str = "") -> None:
    (yamls / "owl.yaml").write_text(OWL.format(family=family, more=more))


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["models", *words])


def told(*words: str) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_list_can_be_narrowed_by_verb_family_and_word(yamls: Path) -> None:
    write(yamls)
    everything = told("list", "--here")
    assert len(everything) >= 220
    assert {row["family"] for row in told("list", "--here", "--family", "gliner")} == {"gliner"}
    assert all("score" in row["verbs"] for row in told("list", "--here", "--verb", "score"))
    assert [row["id"] for row in told("list", "--here", "acme")] == ["acme/owl"]
    assert "acme/owl" in run("list", "--here", "OWL").stdout


def test_options_before_a_subcommand_are_refused_and_not_lost() -> None:
    done = run("--json", "list", "--here")
    assert done.exit_code == 2
    assert "put options after 'list'" in done.stderr


def test_a_model_is_shown_with_the_options_it_takes_and_where_its_files_are(yamls: Path) -> None:
    write(yamls, more=f"source: {{path: '{folder('cross_encoder')}'}}\n")
    shown = told("show", "owl")
    assert (shown["key"], shown["files"]) == ("acme/owl", str(folder("cross_encoder")))
    assert shown["options"]["encode"]["output_dtype"] == "float32"
    assert "languages" not in told("show", "urchade/gliner_multi-v2.1")["options"]["extract"]


def test_a_model_that_is_not_there_is_an_error_that_names_the_nearest() -> None:
    done = run("show", "BAAI/bge-reranker-v2-m4")
    assert done.exit_code == 1
    assert "bge-reranker-v2-m3" in done.stderr


def test_a_model_that_needs_trust_is_told_of_and_not_fetched() -> None:
    shown = told("show", "BAAI/bge-m3")
    assert (shown["needs"], shown["allowed"]) == (["pickle"], False)
    done = run("pull", "BAAI/bge-m3")
    assert done.exit_code == 1
    assert "ROOST_TRUST" in done.stderr


def test_a_pull_goes_on_after_a_model_that_cannot_be_had(yamls: Path) -> None:
    write(yamls, more=f"source: {{path: '{folder('cross_encoder')}'}}\n")
    done = run("pull", "acme/none", "acme/owl")
    assert done.exit_code == 1
    assert "acme/none" in done.stderr
    assert f"acme/owl: {folder('cross_encoder')}" in done.stdout


def test_a_pull_tells_programs_what_came_of_each_name(yamls: Path) -> None:
    write(yamls, more=f"source: {{path: '{folder('cross_encoder')}'}}\n")
    done = run("pull", "acme/none", "acme/owl", "--json")
    assert done.exit_code == 1
    none, owl = json.loads(done.stdout)
    assert (none["name"], none["error"]["code"]) == ("acme/none", "model_not_found")
    assert owl == {"name": "acme/owl", "key": "acme/owl", "files": str(folder("cross_encoder"))}


def test_a_family_that_there_is_not_is_an_error_that_names_the_nearest() -> None:
    done = run("list", "--here", "--family", "glinr")
    assert done.exit_code == 2
    assert "no family is called 'glinr'. Did you mean gliner" in done.stderr


def test_a_path_is_no_name_and_the_error_says_where_folders_go() -> None:
    for command in ("show", "pull"):
        done = run(command, "./mine")
        assert done.exit_code == 1
        assert "ROOST_MODEL_FOLDERS" in done.stderr


@pytest.mark.parametrize("words", [("list", "--here", "owl"), ("show", "openai/clip-vit-base-patch32")])
def test_a_file_that_was_left_out_is_told_of_beside_the_answer(yamls: Path, words: tuple[str, ...]) -> None:
    write(yamls, more="familly: x\n")
    done = run(*words, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) is not None
    assert "1 file is no good: see `roost models check`" in done.stderr


def test_a_model_in_a_folder_is_shown_and_pulled_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").symlink_to(folder("cross_encoder"))
    monkeypatch.setenv("ROOST_MODEL_FOLDERS", str(tmp_path))
    assert told("show", "mine")["family"] == "cross_encoder"
    assert run("pull", "mine").stdout.endswith(f": {tmp_path / 'mine'}\n")


def test_a_pull_uses_the_locator_that_jobs_use(yamls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Locator, "locate", lambda self, spec: asked.append(spec.id))
    write(yamls)
    assert run("pull", "acme/owl").stdout == "acme/owl: has no files of its own\n"
    assert asked == ["acme/owl"]


@pytest.mark.parametrize(
    ("family", "more", "says"),
    [
        ("owl", "", "There is no model family 'owl'"),
        ("fake", "load: {bites: 3}\n", "did you mean 'bytes'"),
        ("fake", "familly: x\n", "did you mean 'family'"),
    ],
)
def test_a_check_finds_what_is_wrong_with_a_file_and_with_its_family(
    yamls: Path, family: str, more: str, says: str
) -> None:
    write(yamls, family, more)
    done = run("check", "--json")
    assert done.exit_code == 1
    assert any(says in problem for problem in json.loads(done.stdout)["problems"])


def test_the_built_in_catalog_is_good_and_large() -> None:
    checked = told("check")
    assert checked["problems"] == []
    assert checked["models"] >= 220
