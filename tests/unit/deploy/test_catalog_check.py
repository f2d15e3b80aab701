from __future__ import annotations

from pathlib import Path

import pytest

from deploy.catalog_check import WrongCatalogError, checked
from tasks.settings import Settings


@pytest.mark.parametrize("name", ["preload", "pinned"])
def test_a_model_to_preload_or_pin_that_is_not_in_the_catalog_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(WrongCatalogError, match=rf"ROOST_{name.upper()}: .*'roost/fak'.*'roost/fake'"):
        checked(Settings.model_validate({name: "roost/fake, roost/fak"}))


def test_all_names_that_are_wrong_are_told_at_once() -> None:
    with pytest.raises(WrongCatalogError, match=r"ROOST_PRELOAD: .*'nobody/a'(.|\n)*ROOST_PINNED: .*'nobody/b'"):
        checked(Settings(preload="nobody/a", pinned="nobody/b"))


def test_a_catalog_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongCatalogError, match=r"ROOST_CATALOG.*/none"):
        checked(Settings(catalog=f"{tmp_path}:{tmp_path}/none"))


def test_a_file_that_is_left_out_of_the_catalog_is_told_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("id: [")

    (problem,) = checked(Settings(catalog=str(tmp_path), preload="roost/fake"))

    assert "bad.yaml: " in problem


def test_a_model_whose_file_was_left_out_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("id: my/model\nfamly: fake\n")

    with pytest.raises(WrongCatalogError, match=r"'my/model'(.|\n)*left out of the catalog: .*bad.yaml: .*famly"):
        checked(Settings(catalog=str(tmp_path), preload="my/model"))
