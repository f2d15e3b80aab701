"""What a file is: the content first, then the word, then the name."""

from __future__ import annotations

import io
import time
import zipfile

import pytest

from engine.documents.errors import Damaged, PasswordNeeded, UnsupportedFormat
from engine.documents.formats import Format, delimiter, hinted, signature, text_format


def packed(*names: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return written.getvalue()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"junk before %PDF-1.4", Format.PDF),
        (b"\x89PNG\r\n\x1a\n....", Format.IMAGE),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", Format.IMAGE),
        (packed("[Content_Types].xml", "word/document.xml"), Format.DOCX),
        (packed("[Content_Types].xml", "ppt/presentation.xml"), Format.PPTX),
        (packed("[Content_Types].xml", "xl/workbook.xml"), Format.XLSX),
        (b"plain text", None),
        (b"BMW and other words", None),
    ],
)
def test_the_first_bytes_tell(data: bytes, expected: Format | None) -> None:
    assert signature(data) is expected


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (packed("readme.txt"), UnsupportedFormat),
        (packed("[Content_Types].xml", "visio/document.xml"), UnsupportedFormat),
        (packed("[Content_Types].xml", "word/document.xml")[:80], Damaged),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), PasswordNeeded),
        (b"\x7fELF\x02\x01", UnsupportedFormat),
        (b"{\\rtf1 text}", UnsupportedFormat),
    ],
)
def test_what_is_known_and_not_read_says_so(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        signature(data)


def test_a_word_goes_before_a_name_and_an_unknown_one_is_told() -> None:
    assert hinted("text/csv; charset=x", "a.md") == (Format.CSV, None)
    assert hinted(None, "a.HTM") == (Format.HTML, None)
    assert hinted("application/octet-stream", "a.pdf") == (Format.PDF, None)
    assert hinted("dxf", None) == (None, "dxf")
    assert hinted(None, "no ending") == (None, None)


def test_a_text_without_a_word_is_looked_at() -> None:
    assert text_format("<!DOCTYPE html><p>x", None) is Format.HTML
    assert text_format("a;b\n1;2\n", None) is Format.CSV
    assert text_format("# A heading\n\nA line, with a comma.", None) is Format.MD
    with pytest.raises(Damaged):
        text_format("words", Format.PDF)


def test_the_mark_that_gives_all_rows_one_width_separates() -> None:
    assert delimiter("a;b (x, y);c\n1;2,5;3\n") == ";"
    assert delimiter("one\ntwo\n") is None


def test_comments_before_what_is_no_markup_are_passed_once() -> None:
    begun = time.process_time()
    assert text_format("<!-- a -->\n" * 40_000 + "<p>hi</p>", None) is Format.MD
    assert text_format("<!-- a -->\n" * 40_000 + "<!--" * 40_000, None) is Format.MD
    assert text_format("\n<?xml version='1.0'?>" + "<!-- a -->\n" * 40_000 + "<html>", None) is Format.HTML
    assert time.process_time() - begun < 5
