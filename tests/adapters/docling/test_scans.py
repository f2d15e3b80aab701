"""Turned pages and pages that are pictures: the same words, or a word that there were none."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from catalog.options import ExtractOptions
from catalog.terms import Verb
from engine.adapters.docling import DoclingAdapter
from tests.adapters.conftest import batch
from tests.adapters.docling import files
from tests.adapters.docling.conftest import Read, codes, data_of, reader

TURNS = (0, 90, 180, 270)


def words(text: str) -> set[str]:
    return set(text.lower().split())


EXPECTED = words(" ".join(files.LINES))


@pytest.mark.parametrize("profile", ["native", "light"])
def test_a_page_of_text_is_the_same_however_it_is_turned(profile: str, request: pytest.FixtureRequest) -> None:
    read = reader(request.getfixturevalue(profile))
    found = [data_of(read(files.pdf([files.LINES], rotate=turn))) for turn in TURNS]
    assert words(found[0]["text"]) >= EXPECTED
    assert all(words(data["text"]) == words(found[0]["text"]) for data in found)


def test_a_scan_is_read_where_it_has_no_text_and_says_so_where_it_may_not_be(light: DoclingAdapter) -> None:
    read = reader(light)
    scanned = files.scan(files.picture())
    data = data_of(read(scanned))
    assert words(data["text"]) >= EXPECTED
    assert not data["warnings"]
    silent = data_of(read(scanned, ocr=False))
    assert codes(silent) == ["no_text"]
    assert not silent["text"].strip()


@pytest.mark.parametrize("turn", TURNS[1:])
def test_a_turned_scan_gives_words_or_a_warning(light: DoclingAdapter, turn: int) -> None:
    # The picture lies on its side in the file, and the page is turned so that it stands.
    image = files.picture().rotate(turn, expand=True)
    data = data_of(reader(light)(files.scan(image, rotate=turn)))
    assert words(data["text"]) & EXPECTED or "no_text" in codes(data)
    upside = data_of(reader(light)(files.scan(files.picture(), rotate=turn)))
    assert words(upside["text"]) & EXPECTED or "no_text" in codes(upside)


def test_an_image_item_is_read_the_way_it_is_shown(native: DoclingAdapter) -> None:
    packed = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    files.picture().rotate(90, expand=True).save(packed, "JPEG", exif=exif, quality=95)
    photo = {"images": [{"data": packed.getvalue(), "format": "jpeg"}]}
    found = native.run(batch(Verb.EXTRACT, [photo, {"images": [*photo["images"]] * 2}], [ExtractOptions()] * 2))
    assert words(data_of(found[0])["text"]) >= EXPECTED
    assert getattr(found[1], "code", None) == "invalid_item"


def test_only_the_pages_without_text_are_read_as_pictures(read: Read) -> None:
    import pypdfium2

    book = pypdfium2.PdfDocument.new()
    for part in (files.pdf([["typed words"]]), files.scan(files.picture(files.LINES[:1], (500, 120)))):
        source = pypdfium2.PdfDocument(part)
        book.import_pages(source)
        source.close()
    packed = io.BytesIO()
    book.save(packed)
    book.close()
    both = data_of(read(packed.getvalue()))
    assert words(both["text"]) >= {"typed", "words", "quarterly", "report"}
    typed = data_of(read(packed.getvalue(), ocr=False))
    assert codes(typed) == ["pages_without_text"]
    assert "typed words" in typed["text"]


def test_tables_are_found_by_their_rules_and_left_as_text_when_not_wanted(light: DoclingAdapter) -> None:
    data = data_of(reader(light)(_ruled()))
    rows = data["tables"][0]["header"] + data["tables"][0]["rows"]
    assert rows == [[f"cell {row}{column}" for column in range(3)] for row in range(4)]
    assert data["tables"][0]["page"] == 1
    plain = data_of(reader(light)(_ruled(), tables=False))
    assert plain["tables"] == []
    assert "cell 32" in plain["text"]


def _ruled() -> bytes:
    """A page with a ruled table of four rows and three columns."""
    shown = [b"1 w"]
    shown += [b"72 %d m 522 %d l S" % (y, y) for y in range(560, 721, 40)]
    shown += [b"%d 560 m %d 720 l S" % (x, x) for x in range(72, 523, 150)]
    for row in range(4):
        for column in range(3):
            place = (90 + 150 * column, 695 - 40 * row)
            shown.append(b"BT /F1 14 Tf %d %d Td (cell %d%d) Tj ET" % (*place, row, column))
    return files.page(b"\n".join(shown))
