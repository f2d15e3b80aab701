from __future__ import annotations

import pytest

from tasks.backfills.globs import BadGlob, Glob


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.pdf", "a.pdf", True),
        ("*.pdf", "sub/a.pdf", False),
        ("*.pdf", "a.pdf\n", False),
        ("*/?.pdf", "sub/a.pdf", True),
        ("**/*.pdf", "a.pdf", True),
        ("**/*.pdf", "sub/deep/a.pdf", True),
        ("**/deep/**/a.*", "sub/deep/a.pdf", True),
        ("**/deep/**/a.*", "sub/a.pdf", False),
        ("sub/**", "sub/deep/a.pdf", True),
        ("sub/**", "other/a.pdf", False),
        ("**/**", "a.pdf", True),
        ("[ab].pdf", "b.pdf", True),
        ("[!ab].pdf", "b.pdf", False),
        ("[z-a].pdf", "b.pdf", False),
        ("[.pdf", "[.pdf", True),
    ],
)
def test_what_a_glob_says(glob: str, path: str, matches: bool) -> None:
    assert Glob(glob).matches(path) is matches


@pytest.mark.parametrize("glob", ["**x", "a**", "sub/***/x"])
def test_two_stars_are_alone(glob: str) -> None:
    with pytest.raises(BadGlob):
        Glob(glob)


@pytest.mark.timeout(20)
def test_no_glob_takes_long() -> None:
    assert not Glob("*a" * 100 + "b").matches("a" * 250)
    assert not Glob("**/a/" * 100 + "b").matches("a/" * 250 + "c")
