from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import engine.adapters
import engine.families
from catalog.loader import Catalog
from catalog.schema import Profile, Spec
from engine.adapters.fake import FakeAdapter
from engine.errors import LoadFailed, LoadReason
from engine.families import adapter_class, check, families

MakeSpec = Callable[..., Spec]


def said(spec: Spec) -> list[str]:
    return [problem.message for problem in check([spec])]


def test_a_family_is_found_by_its_modules_name() -> None:
    assert adapter_class("fake") is FakeAdapter


def test_every_module_but_the_base_is_a_family() -> None:
    files = {file.stem for folder in engine.adapters.__path__ for file in Path(folder).glob("[a-z]*.py")}
    assert set(families()) == files - {"base"}


def test_an_unknown_family_is_a_fault_of_the_yaml_and_names_the_nearest() -> None:
    with pytest.raises(LoadFailed, match=r"'sentence_transfomer'.*did you mean 'sentence_t") as caught:
        adapter_class("sentence_transfomer")
    assert caught.value.reason is LoadReason.CONFIG


def test_an_unknown_family_like_no_other_names_them_all() -> None:
    with pytest.raises(LoadFailed, match=f"valid: {', '.join(families())}"):
        adapter_class("zzz")


def test_a_family_whose_module_breaks_keeps_nobody_else_from_work(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: str) -> None:
        raise RuntimeError("no such card")

    monkeypatch.setattr(engine.families, "import_module", breaks)
    (problem,) = said(make_spec().model_copy(update={"family": "broken"}))
    assert "no such card" in problem


def test_the_built_in_models_fit_their_families() -> None:
    assert check(Catalog.load(strict=True).specs) == []


def test_a_model_of_no_family_is_named(make_spec: MakeSpec) -> None:
    (problem,) = said(make_spec("org/m").model_copy(update={"family": "fack"}))
    assert problem.startswith("org/m: family: ")
    assert "did you mean 'fake'?" in problem


def test_an_unknown_load_option_names_the_nearest(make_spec: MakeSpec) -> None:
    assert said(make_spec(load_secs=1)) == [
        "m: load.load_secs: Load option 'load_secs': unknown; did you mean 'load_seconds'?"
    ]


def test_a_wrong_value_of_a_load_option_is_named(make_spec: MakeSpec) -> None:
    (problem,) = said(make_spec(bytes=-1))
    assert problem.startswith("m: load.bytes: Load option 'bytes': Input should be greater than")


def test_a_profile_is_checked_over_what_it_extends(make_spec: MakeSpec) -> None:
    profiles = {"a": Profile(load={"bytes": 1}), "b": Profile(extends="a", load={"dim": 4})}
    (problem,) = said(make_spec().model_copy(update={"profiles": profiles}))
    assert problem.startswith("m: profiles.b.load.dim: ")


def test_a_fault_of_the_model_is_not_told_again_for_each_profile(make_spec: MakeSpec) -> None:
    spec = make_spec(byts=1).model_copy(update={"profiles": {"a": Profile(), "b": Profile(load={"dims": 4})}})
    assert len(said(spec)) == 1


def test_a_precision_without_its_measured_loss_is_told_before_anything_is_loaded() -> None:
    spec = Catalog.load(strict=True).find("all-MiniLM-L6-v2").spec
    (problem,) = said(spec.model_copy(update={"precisions": {}}))
    assert "profiles.int8.load.precision" in problem
    assert "precisions.int8" in problem
