"""What comes of each format: text, tables, JSON; and what no version of a library may lose."""

from __future__ import annotations

import pytest

from tests.adapters.docling import files
from tests.adapters.docling.conftest import Read, codes, data_of

CELLS = [["Name", "Größe", "Preis"], ["Müller", "fünf", "12,50 €"], ["Ærø", "naïve", "7"]]
JAPANESE = [["名前", "住所", "注"], ["田中太郎", "東京都千代田区", "あ"], ["鈴木", "大阪", "カ"]]


def written(rows: list[list[str]], mark: str = ",") -> str:
    return "".join(mark.join(f'"{cell}"' if mark in cell else cell for cell in row) + "\n" for row in rows)


def test_an_office_document_keeps_headings_and_tables(read: Read) -> None:
    data = data_of(read(files.docx(), "estimate.docx"))
    assert data["format"] == "docx"
    assert "# Estimate" in data["markdown"]
    assert "For the repair of the roof." in data["text"]
    assert data["tables"][0]["header"] + data["tables"][0]["rows"] == [["Work", "Price"], ["Roof", "1200"]]
    assert data["document"]["schema_name"] == "DoclingDocument"
    assert data["partial"] is False


def test_slides_and_sheets_are_pages(read: Read) -> None:
    slides = data_of(read(files.pptx(), "deck.pptx"))
    assert "Flood claims" in slides["text"]
    assert "Water came in" in slides["text"]
    assert slides["pages"] == 1
    sheets = data_of(read(files.xlsx(), "birds.xlsx"))
    table = sheets["tables"][0]
    assert table["header"] + table["rows"] == [["bird", "count"], ["owl", "3"], ["wren", "12"]]
    assert table["page"] == 1


def test_merged_cells_keep_their_text_and_every_row_its_four_columns(read: Read) -> None:
    data = data_of(read(files.merged_docx(), "merged.docx"))
    rows = next(rows for table in data["tables"] if len((rows := table["header"] + table["rows"])[0]) == 4)
    assert [len(row) for row in rows] == [4, 4, 4, 4]
    assert rows[0] == ["r0c0", "across", "across", "r0c3"]
    assert [row[0] for row in rows[1:3]] == ["down", "down"]
    assert rows[1][1:] == ["r1c1", "r1c2", "r1c3"]
    assert "inner left" in data["text"]
    assert "inner right" in data["text"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16", "cp1252"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_is_the_same_in_every_encoding_and_with_every_separator(read: Read, encoding: str, mark: str) -> None:
    data = data_of(read(written(CELLS, mark).encode(encoding), "prices.csv"))
    table = data["tables"][0]
    assert table["header"] + table["rows"] == CELLS
    assert ("encoding_guessed" in codes(data)) == (encoding in ("cp1252", "utf-16-le"))


def test_an_encoding_shows_itself_even_after_much_ascii(read: Read) -> None:
    ascii_rows = [[str(row), f"row {row} in plain ASCII", "x"] for row in range(500)]
    rows = [["id", "code", "note"], *ascii_rows, *JAPANESE]
    text = written(rows).encode("shift_jis")
    assert text[:10_000].isascii()
    table = data_of(read(text, "codes.csv"))["tables"][0]
    assert (table["header"] + table["rows"])[-3:] == JAPANESE


def test_a_charset_that_is_told_is_believed_and_a_wrong_one_refused(read: Read) -> None:
    short = "nom;ville\nÉlodie;Orléans\n".encode("mac_roman")
    data = data_of(read(short, format="text/csv; charset=mac_roman"))
    assert data["tables"][0]["rows"] == [["Élodie", "Orléans"]]
    for outcome in (read(short, "a.csv", "csv; charset=utf-8"), read(short, "a.csv", "csv; charset=klingon")):
        assert getattr(outcome, "code", None) == "unknown_encoding"


def test_a_page_is_read_by_the_encoding_that_it_is_in_whatever_it_says(read: Read) -> None:
    page = '<html><head><meta charset="iso-8859-1"></head><body><p>Größe 5 €</p></body></html>'
    assert "Größe 5 €" in data_of(read(page.encode("utf-8"), "page.html"))["text"]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"before\x00after\n" + b"and more of it " * 20, "a.md"),
        (b"a,b\nbefore\x00after,2\n" + b"more,1\n" * 40, "a.csv"),
        (b"<p>before&#0;after</p>", "a.html"),
        (files.page(b"BT /F1 18 Tf 72 720 Td (before\\000after) Tj ET"), "a.pdf"),
    ],
    ids=["md", "csv", "html", "pdf"],
)
def test_no_result_holds_a_character_that_cannot_be_stored(read: Read, data: bytes, name: str) -> None:
    found = data_of(read(data, name))
    assert "\\x00" not in repr(found)
    assert "before" in found["markdown"]
    assert "after" in found["markdown"]


def test_pages_are_chosen_and_what_is_not_there_is_told(read: Read) -> None:
    book = files.pdf([[f"page number {page}"] for page in range(1, 8)])
    data = data_of(read(book, pages="2-3,7"))
    assert data["pages"] == 3
    assert [line for line in data["text"].splitlines() if line] == [f"page number {page}" for page in (2, 3, 7)]
    assert getattr(read(book, pages="6-9"), "code", None) == "wrong_pages"
    assert getattr(read(files.docx(), pages="1"), "code", None) == "wrong_pages"


def test_more_pages_than_are_read_at_once_are_refused_unless_some_are_chosen(read: Read) -> None:
    book = files.pdf([["x"]] * 101)
    assert getattr(read(book), "code", None) == "too_large"
    assert data_of(read(book, pages="100-101"))["pages"] == 2
