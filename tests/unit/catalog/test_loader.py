from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errors import AmbiguousModel, InvalidSpec, UnknownModel
from catalog.loader import BUILT_IN, Catalog

MODEL = """
id: {id}
family: fake
tasks:
  encode:
    dims: 8
    matryoshka: [4]
parameters: 0
max_length: 16
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, text: str, folder: str = "extra") -> Path:
        (tmp_path / folder).mkdir(exist_ok=True)
        file = tmp_path / folder / name
        file.write_text(text)
        return file.parent

    return write_file


def only(*folders: Path) -> Catalog:
    return Catalog.load(folders[1:], strict=True, built_in=folders[0])


def test_built_in_models_are_all_valid_and_named_by_their_file() -> None:
    catalog = Catalog.load(strict=True)
    assert {f"{spec.id.replace('/', '__')}.yaml" for spec in catalog.specs} == {f.name for f in BUILT_IN.iterdir()}


@pytest.mark.parametrize("name", ["org/some-Model", "org__some-Model", "some-Model", "org/some-Model:default"])
def test_every_spelling_finds_the_model_under_one_key(write: Write, name: str) -> None:
    catalog = only(write("a.yaml", MODEL.format(id="org/some-Model")))
    assert catalog.find(name).key == "org/some-Model"


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "org/../../x",
        "/etc/passwd",
        "org%2Fm",
        "",
        ":",
        "org/m:",
        "org/m:../x",
        "a" * 5_000,
        "Ünïcode/名",
    ],
)
def test_a_name_that_is_not_in_the_catalog_is_unknown_whatever_it_says(write: Write, name: str) -> None:
    catalog = only(write("a.yaml", MODEL.format(id="org/m")))
    with pytest.raises(UnknownModel) as raised:
        catalog.find(name)
    assert len(raised.value.message) < 600


def test_an_unknown_name_names_the_nearest(write: Write) -> None:
    write("a.yaml", MODEL.format(id="org/all-MiniLM-L6-v2"))
    catalog = only(write("b.yaml", MODEL.format(id="org/bge-m3")))
    with pytest.raises(UnknownModel, match="org/all-MiniLM-L6-v2"):
        catalog.find("all-minilm-l6")


def test_a_bare_name_that_two_models_share_asks_for_the_whole_id(write: Write) -> None:
    write("a.yaml", MODEL.format(id="one/m"))
    catalog = only(write("b.yaml", MODEL.format(id="two/m")))
    with pytest.raises(AmbiguousModel, match="'one/m' or 'two/m'"):
        catalog.find("m")


PROFILES = """
load: {bytes: 1, dims: 8}
run: {normalize: false}
profiles:
  small: {load: {bytes: 2}, run: {dimensions: 4}}
  smaller: {extends: small, load: {dims: 4}, run: {normalize: true}}
"""


def test_a_profile_lies_over_those_it_extends(write: Write) -> None:
    catalog = only(write("a.yaml", MODEL.format(id="org/m") + PROFILES))
    choice = catalog.find("m:smaller")
    assert choice.key == "org/m:smaller"
    assert choice.load == {"bytes": 2, "dims": 4}
    assert choice.run == {"normalize": True, "dimensions": 4}
    assert catalog.find("org/m").load == {"bytes": 1, "dims": 8}


def test_an_unknown_profile_names_those_there_are(write: Write) -> None:
    catalog = only(write("a.yaml", MODEL.format(id="org/m") + PROFILES))
    with pytest.raises(UnknownModel, match="org/m:small"):
        catalog.find("org/m:smal")


def test_a_choice_cannot_be_changed(write: Write) -> None:
    choice = only(write("a.yaml", MODEL.format(id="org/m"))).find("org/m")
    with pytest.raises(dataclasses.FrozenInstanceError):
        choice.key = "other"  # type: ignore[misc]


def test_a_later_folder_replaces_a_model_of_the_same_id(write: Write) -> None:
    first = write("a.yaml", MODEL.format(id="org/m"), "one")
    second = write("other.yaml", MODEL.format(id="org/m").replace("dims: 8", "dims: 9"), "two")
    facts = only(first, second).find("org/m").spec.tasks.encode
    assert facts is not None
    assert facts.dims == 9


def test_two_files_of_one_folder_with_one_id_are_a_problem(write: Write) -> None:
    write("a.yaml", MODEL.format(id="org/m"))
    folder = write("b.yaml", MODEL.format(id="org/m"))
    assert "b.yaml: id" in Catalog.load([folder]).problems[0].message


@pytest.mark.parametrize(
    ("broken", "field", "says"),
    [
        (MODEL.format(id="org/m") + "familly: x\n", "familly", "did you mean 'family'"),
        (MODEL.format(id="org/m").replace("tasks:", "task:"), "task", "task: unknown key; did you mean 'tasks'?"),
        (MODEL.format(id="org/m").replace("dims: 8", "dim: 8"), "tasks.encode.dim", "did you mean 'dims'"),
        (MODEL.format(id="org/m") + "profiles: {a: {extend: b}}\n", "profiles.a.extend", "did you mean 'extends'"),
        (MODEL.format(id="org/m") + "source: {max_length: 9}\n", "source.max_length", "belongs at the top"),
        (MODEL.format(id="org/m") + "revision: main\n", "revision", "belongs under 'source'"),
        (MODEL.format(id="org/m") + "cost: {base: .inf, per_token: 0}\n", "cost.base", "finite"),
        (MODEL.format(id="org/m") + "cost: {base: 1.0e+308, per_token: 0}\n", "cost.base", "less than or equal"),
        (MODEL.format(id="org/m") + "zzz: 1\n", "zzz", "valid here: id, family,"),
        (MODEL.format(id="org/m") + "stay: {keep_alive: 20}\n", "stay.keep_alive", "did you mean 'keep_alive_s'"),
        (MODEL.format(id="org/m") + "precisions: {int8: {wurst: 1}}\n", "precisions.int8.wurst", "valid here: cosine_"),
        (MODEL.format(id="../m"), "id", "pattern"),
        (MODEL.format(id="org/m").replace("dims: 8", "dims: many"), "tasks.encode.dims", "integer"),
        (MODEL.format(id="org/m").replace("[4]", "[4, 9]"), "tasks.encode", "more than the model's 8"),
        (MODEL.format(id="org/m") + "parameters: 1\n", "parameters", "given twice"),
        (MODEL.format(id="org/m") + "profiles:\n  a: {}\n  a: {}\n", "profiles.a", "given twice"),
        (MODEL.format(id="org/m") + "profiles: {'a:b': {}}\n", "profiles.a:b", "pattern"),
        (MODEL.format(id="org/m") + "profiles: {a: {extends: b}}\n", None, "not a profile"),
        (MODEL.format(id="org/m") + "run: {dimensions: 5}\n", "run.dimensions", "4 or 8"),
        (
            MODEL.format(id="org/m") + "profiles: {a: {run: {normalise: true}}}\n",
            "profiles.a.run.normalise",
            "normalize",
        ),
        (MODEL.format(id="org/m") + "load: &a {x: 1}\nprofiles: {p: {load: *a}}\n", "profiles.p.load", "aliases"),
        (MODEL.format(id="org/m") + "load: {1: 2}\n", "load", "plain text"),
        ("- a\n- b\n", None, "one mapping"),
        ("", None, "one mapping"),
        ("id: [\n", None, "not valid YAML"),
        ("id: 2024-13-40\n", None, "not valid YAML"),
        ("id: !!python/object/apply:os.getcwd []\n", None, "not valid YAML"),
        ("[" * 100_000, None, "not valid YAML"),
        ("# " + "x" * 300_000, None, "bytes"),
    ],
)
def test_a_bad_file_is_refused_by_file_and_field(write: Write, broken: str, field: str | None, says: str) -> None:
    folder = write("bad.yaml", broken)
    with pytest.raises(InvalidSpec) as raised:
        Catalog.load([folder], strict=True)
    assert "bad.yaml" in raised.value.message
    assert says in raised.value.message
    assert raised.value.param == field


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"id: \xff\xfe")
    with pytest.raises(InvalidSpec, match="UTF-8"):
        Catalog.load([tmp_path], strict=True)


def test_a_bad_file_is_listed_and_its_neighbours_load(write: Write) -> None:
    write("bad.yaml", "id: [")
    catalog = Catalog.load([write("good.yaml", MODEL.format(id="org/m"))])
    assert catalog.find("org/m").spec.max_length == 16
    assert [("bad.yaml" in problem.message) for problem in catalog.problems] == [True]


def test_a_missing_folder_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    catalog = Catalog.load([tmp_path / "nowhere"])
    assert "nowhere" in catalog.problems[0].message
    assert catalog.specs


def test_a_relative_weights_path_starts_at_the_file(write: Write, tmp_path: Path) -> None:
    catalog = only(write("a.yaml", MODEL.format(id="org/m") + "source: {path: weights/m}\n"))
    assert catalog.find("org/m").spec.source.path == str(tmp_path / "extra" / "weights" / "m")


def test_what_is_no_regular_file_is_refused_unread(write: Write) -> None:
    folder = write("good.yaml", MODEL.format(id="org/good"))
    os.mkfifo(folder / "pipe.yaml")
    (folder / "endless.yaml").symlink_to("/dev/zero")
    catalog = Catalog.load((), built_in=folder)
    assert [spec.id for spec in catalog.specs] == ["org/good"]
    assert len(catalog.problems) == 2
    assert all("no regular file" in problem.message for problem in catalog.problems)
