"""Cells with anything between them, as one plain CSV."""

from __future__ import annotations

import pytest

from engine.documents.errors import Damaged, Empty
from engine.documents.tabular import as_csv

PLAIN = '"a","b, c"\n"1","2"\n'


def test_any_separator_gives_the_same_cells() -> None:
    assert as_csv("a;b, c\n1;2\n") == PLAIN
    assert as_csv("a\tb, c\n\n1\t2\n", tabs=True) == PLAIN
    assert as_csv('a,"b, c"\n1,2\n') == PLAIN
    assert as_csv("a|b, c\n1|2\n") == PLAIN


def test_rows_that_are_too_short_are_filled_and_quoted_lines_kept() -> None:
    assert as_csv("a;b;c\n1;2\n") == '"a","b","c"\n"1","2",""\n'
    assert as_csv('a,b\n"two\nlines",x\n') == '"a","b"\n"two\nlines","x"\n'


def test_what_has_no_cells_or_an_endless_one_is_told() -> None:
    with pytest.raises(Empty):
        as_csv(",,\n,,\n")
    with pytest.raises(Damaged):
        as_csv('a,b\n"' + "x" * 1_000_001)
