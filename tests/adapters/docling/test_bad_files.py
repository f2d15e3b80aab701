"""Files that cannot be read, and files that only look so: each with a code of its own, none worth a second try."""

from __future__ import annotations

import pytest

from catalog.terms import Verb
from engine.adapters.docling import DoclingAdapter
from engine.errors import EngineError
from engine.types import Outcome, Output
from tests.adapters.conftest import batch
from tests.adapters.docling import files
from tests.adapters.docling.conftest import Read, codes, data_of

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)


def code(outcome: Outcome) -> str:
    assert isinstance(outcome, EngineError), outcome
    assert not outcome.retryable
    return outcome.code


def test_a_locked_pdf_asks_for_its_password_and_opens_with_it(read: Read) -> None:
    locked = (files.FILES / "locked.pdf").read_bytes()
    assert code(read(locked)) == "password_needed"
    assert code(read(locked, password="wrong")) == "password_needed"
    assert "Example" in data_of(read(locked, password="test"))["markdown"]


def test_a_pdf_that_only_its_owner_may_change_is_read(read: Read) -> None:
    assert data_of(read((files.FILES / "owner-locked.pdf").read_bytes()))["text"].strip()


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"%PDF-1.3\nThis is not a valid PDF file\n%%EOF\n", "a.pdf", "damaged"),
        (b"no signature at all", "a.pdf", "damaged"),
        (files.pdf([files.LINES])[:300], "a.pdf", "damaged"),
        (files.pdf([]), "a.pdf", "empty"),
        (b"", "a.pdf", "empty"),
        (b" \n\t ", "a.txt", "empty"),
        (files.docx()[: len(files.docx()) // 2], "a.docx", "damaged"),
        (files.png(files.picture())[:500], "a.png", "damaged"),
        (OLE + "EncryptedPackage".encode("utf-16-le"), "a.xlsx", "password_needed"),
        (OLE, "a.doc", "unsupported_format"),
        (b"  0\nSECTION\n  2\nHEADER\n", "drawing.dxf", "unsupported_format"),
        (bytes(range(256)) * 20, None, "unsupported_format"),
        (b"x" * (16 * 2**20 + 1), "a.txt", "too_large"),
    ],
    ids=[
        *("fake pdf", "text named pdf", "cut pdf", "pdf without pages", "no bytes", "blanks", "cut docx", "cut png"),
        *("locked xlsx", "old doc", "dxf", "bytes", "too many bytes"),
    ],
)
def test_what_cannot_be_read_says_why(read: Read, data: bytes, name: str | None, expected: str) -> None:
    assert code(read(data, name)) == expected


def test_the_content_decides_not_the_name(read: Read) -> None:
    data = data_of(read(files.png(files.picture()), "scan.pdf", ocr=False))
    assert data["format"] == "image"
    assert codes(data) == ["no_text"]


def test_a_bomb_named_docx_is_refused_before_it_unpacks(quick: Read, native: DoclingAdapter) -> None:
    before = native.resident
    outcome = quick(files.bomb(), "claim.docx")
    assert code(outcome) == "too_large"
    assert native.resident < before + 64 * 2**20


def test_one_that_declares_billions_of_pixels_is_refused(quick: Read) -> None:
    header = files.png(files.picture())
    bomb = header[:16] + (60_000).to_bytes(4, "big") * 2 + header[24:]
    assert code(quick(bomb, "a.png")) in ("too_large", "damaged")


def test_of_five_documents_two_fail_with_their_reasons_and_three_are_read(native: DoclingAdapter) -> None:
    locked = (files.FILES / "locked.pdf").read_bytes()
    documents = [
        {"data": b"# One", "name": "1.md"},
        {"data": b"  0\nSECTION\n", "name": "2.dxf"},
        {"data": files.docx(), "name": "3.docx"},
        {"data": locked, "name": "4.pdf"},
        {"data": b"a,b\n1,2\n", "name": "5.csv"},
    ]
    found = native.run(batch(Verb.EXTRACT, [{"document": one} for one in documents], [None] * 5))
    assert [one.code if isinstance(one, EngineError) else "read" for one in found] == [
        *("read", "unsupported_format", "read", "password_needed", "read")
    ]
    assert all(one.fields["data"]["text"].strip() for one in found if isinstance(one, Output))
