"""Files that make converters slow, deep or large: done, or refused by a limit; and the process lives on."""

from __future__ import annotations

from engine.adapters.docling import DoclingAdapter
from tests.adapters.docling import files
from tests.adapters.docling.conftest import Read, data_of

MIB = 2**20


def test_a_hundred_thousand_nested_tags_are_refused_at_once(quick: Read) -> None:
    page = "<div>" * 100_000 + "deep" + "</div>" * 100_000
    assert getattr(quick(page.encode(), "deep.html"), "code", None) == "too_large"


def test_two_hundred_nested_tables_lose_nothing(read: Read) -> None:
    page = "".join(f"<table><tr><td>level {i}" for i in range(200)) + "</td></tr></table>" * 200
    text = data_of(read(page.encode(), "nested.html"))["text"]
    assert all(f"level {i}" in text for i in range(200))


def test_five_thousand_cells_with_lists_are_read(read: Read) -> None:
    cell = "<td><ul><li>one {0}</li><li>two</li></ul></td>"
    rows = ("<tr>" + "".join(cell.format(10 * row + column) for column in range(10)) + "</tr>" for row in range(500))
    data = data_of(read(f"<table>{''.join(rows)}</table>".encode(), "cells.html"))
    assert "one 4999" in data["markdown"]


def test_one_styled_cell_in_the_last_corner_costs_nothing(quick: Read) -> None:
    assert "near" in data_of(quick(files.far_xlsx(), "far.xlsx"))["text"]


def test_a_sheet_of_three_hundred_thousand_rows_is_refused_in_little_memory(
    quick: Read, native: DoclingAdapter
) -> None:
    before = native.resident
    outcome = quick(files.long_xlsx(300_000), "long.xlsx")
    assert getattr(outcome, "code", None) == "too_large"
    assert "cells" in str(outcome)
    assert native.resident < before + 64 * MIB
