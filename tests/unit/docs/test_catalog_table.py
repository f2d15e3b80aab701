"""docs/catalog.md tells of all built-in models and of no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog.loader import Catalog
from deploy.catalog_table import placed

PAGE = Path(__file__).parents[3] / "docs" / "catalog.md"


def test_the_table_is_the_one_the_catalog_gives() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert placed(page) == page, "run: python -m deploy.catalog_table"


def test_every_model_is_in_it_once() -> None:
    named = re.findall(r"^\| `([^`]+)`", PAGE.read_text(encoding="utf-8").partition("## All models")[2], re.MULTILINE)
    assert sorted(named) == sorted(spec.id for spec in Catalog.load(strict=True).specs)


def test_a_page_without_the_marks_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs the marks"):
        placed("# nothing")
