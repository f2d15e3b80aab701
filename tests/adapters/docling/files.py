"""Documents made for the tests: PDFs by hand, office files by the libraries that write them, scans by drawing."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

from docx import Document
from openpyxl import Workbook  # type: ignore[import-untyped]
from openpyxl.styles import Font  # type: ignore[import-untyped]
from PIL import Image, ImageDraw, ImageFont
from pptx import Presentation
from pptx.util import Inches

FILES = Path(__file__).parents[2] / "files" / "documents"
LINES = ("Quarterly report", "The roof of the barn leaks", "Total 42 euros")


def pdf(pages: Sequence[Sequence[str]], rotate: int = 0) -> bytes:
    """A PDF with these lines of text on its pages."""
    return _drawn([_typed(lines) for lines in pages], rotate)


def page(shown: bytes) -> bytes:
    """A PDF of one page, drawn by these operators."""
    return _drawn([shown], 0)


def _typed(lines: Sequence[str]) -> bytes:
    return b"".join(
        b"BT /F1 18 Tf 72 %d Td (%s) Tj ET\n" % (720 - 40 * row, line.encode("latin-1"))
        for row, line in enumerate(lines)
    )


def _drawn(pages: Sequence[bytes], rotate: int) -> bytes:
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for shown in pages:
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(shown), shown))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Rotate %d /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (rotate, len(objects))
        )
        kids.append(len(objects))
    refs = b" ".join(b"%d 0 R" % kid for kid in kids)
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (refs, len(kids))
    return _assemble(objects)


def scan(image: Image.Image, rotate: int = 0) -> bytes:
    """A PDF of one page that is a picture and no text."""
    packed = io.BytesIO()
    image.convert("RGB").save(packed, "JPEG", quality=90)
    data = packed.getvalue()
    width, height = (side // 2 for side in image.size)
    shown = b"q %d 0 0 %d 0 0 cm /I Do Q" % (width, height)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Rotate %d /Contents 5 0 R "
        b"/Resources << /XObject << /I 4 0 R >> >> >>" % (width, height, rotate),
        b"<< /Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceRGB /BitsPerComponent 8 "
        b"/Filter /DCTDecode /Length %d >>\nstream\n%s\nendstream" % (*image.size, len(data), data),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(shown), shown),
    ]
    return _assemble(objects)


def picture(lines: Sequence[str] = LINES, size: tuple[int, int] = (700, 300)) -> Image.Image:
    """Lines of text, drawn."""
    image = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=36)
    for row, line in enumerate(lines):
        draw.text((40, 30 + 80 * row), line, fill="black", font=font)
    return image


def png(image: Image.Image) -> bytes:
    """The picture as a file."""
    packed = io.BytesIO()
    image.save(packed, "PNG")
    return packed.getvalue()


def docx() -> bytes:
    """A heading, a paragraph and a table."""
    document = Document()
    document.add_heading("Estimate", 1)
    document.add_paragraph("For the repair of the roof.")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip((c for row in table.rows for c in row.cells), ("Work", "Price", "Roof", "1200"), strict=True):
        cell.text = text
    return _saved(document)


def merged_docx() -> bytes:
    """Four by four cells: two merged across, two merged down, a table in one of them, and a row of nothing."""
    document = Document()
    table = document.add_table(rows=4, cols=4)
    for row in range(3):
        for column in range(4):
            table.cell(row, column).text = f"r{row}c{column}"
    table.cell(0, 1).merge(table.cell(0, 2)).text = "across"
    table.cell(1, 0).merge(table.cell(2, 0)).text = "down"
    inner = table.cell(2, 3).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "inner left", "inner right"
    return _saved(document)


def xlsx() -> bytes:
    """A sheet of three rows."""
    book = Workbook()
    for row in (("bird", "count"), ("owl", 3), ("wren", 12)):
        book.active.append(row)
    return _saved(book)


def far_xlsx() -> bytes:
    """A small table, and one styled cell in the last corner of the sheet."""
    book = Workbook()
    book.active["A1"], book.active["B1"] = "near", "by"
    book.active["XFD1048576"].font = Font(bold=True)
    return _saved(book)


def long_xlsx(rows: int) -> bytes:
    """A sheet of so many rows."""
    book = Workbook(write_only=True)
    sheet = book.create_sheet()
    for row in range(rows):
        sheet.append((row, "text"))
    return _saved(book)


def pptx() -> bytes:
    """One slide."""
    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Flood claims"
    box = slide.shapes.add_textbox(Inches(1), Inches(2), Inches(5), Inches(1))
    box.text_frame.text = "Water came in by the cellar."
    return _saved(deck)


def bomb() -> bytes:
    """An office file by name whose one part unpacks to a gibibyte."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w", force_zip64=True) as part:
            block = b" " * 2**24
            for _ in range(64):
                part.write(block)
    return packed.getvalue()


def _saved(document: object) -> bytes:
    packed = io.BytesIO()
    document.save(packed)  # type: ignore[attr-defined]
    return packed.getvalue()


def _assemble(objects: Sequence[bytes]) -> bytes:
    written = bytearray(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    written += b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(written)
