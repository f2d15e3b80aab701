"""Every page's links to files of this project lead somewhere, and to a heading that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path.relative_to(ROOT)
    for folder in (ROOT, ROOT / "docs", ROOT / "docs" / "decisions", ROOT / "deploy", *(ROOT / "examples").iterdir())
    for path in folder.glob("*.md")
)
_LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_FILE = re.compile(r"`((?:api|catalog|deploy|docs|engine|examples|migrations|tasks|tests)/[\w./-]*)`")
_TO_BE_WRITTEN = {"deploy/.env", "deploy/roost.env"}
"""Files that the reader makes."""


def _anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    broken = []
    for target, anchor in _LINK.findall(text):
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    named = set(_FILE.findall((ROOT / page).read_text(encoding="utf-8")))
    assert {name for name in named if not (ROOT / name).exists()} - _TO_BE_WRITTEN == set()


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in folder.glob("0*.md")} == set(re.findall(r"\((0\d{3}-[\w-]+\.md)\)", index))
