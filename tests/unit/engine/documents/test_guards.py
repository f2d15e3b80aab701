"""Limits that are checked before a library opens a file."""

from __future__ import annotations

import io
import time
import zipfile

import pytest

from engine.documents import guards
from engine.documents.errors import TooLarge
from engine.documents.formats import Format


def test_depth_counts_what_is_open_and_not_what_needs_no_end() -> None:
    guards.check_markup("<p>line<br>" * 5000)
    guards.check_markup("<div><span>x</span></div>" * 5000)
    with pytest.raises(TooLarge, match="deep"):
        guards.check_markup("<div>" * (guards.MOST_DEPTH + 1))
    with pytest.raises(TooLarge, match="tags"):
        guards.check_markup("<br>" * (guards.MOST_TAGS + 1))


def test_the_name_of_a_tag_that_never_ends_is_read_once() -> None:
    begun = time.process_time()
    guards.check_markup("<" + "a" * 300_000)
    assert time.process_time() - begun < 5


def workbook(cells: int) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", "<sheetData>" + '<c r="A1"><v>1</v></c>' * cells + "</sheetData>")
    return written.getvalue()


def test_cells_are_counted_across_the_blocks_that_they_are_read_in() -> None:
    guards.check_packed(workbook(guards.MOST_CELLS), Format.XLSX)
    with pytest.raises(TooLarge, match="cells"):
        guards.check_packed(workbook(guards.MOST_CELLS + 1), Format.XLSX)


def test_what_unpacks_to_too_much_is_not_unpacked() -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * (guards.MOST_UNPACKED + 1))
    with pytest.raises(TooLarge, match="unpacks to 200 MiB"):
        guards.check_packed(written.getvalue(), Format.DOCX)
