"""Which pages of a document are read, and what the pages of a PDF are, as far as PDFium tells without reading them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.documents.errors import Damaged, Empty, PasswordNeeded, TooLarge, WrongPages
from engine.documents.guards import MOST_PIXELS

_PASSWORD = 4
"""PDFium's code for a password that is missing or wrong."""

_LEAST_CHARS = 1
_DRAWN = 3.0
"""Pixels per point at which OCR looks at a page."""


@dataclass(frozen=True, slots=True)
class Pdf:
    """What is known of a PDF: for each page how many characters it has, and whether the file ends where it should.

    `sizes` has the width and height of each page in points.
    """

    chars: tuple[int, ...]
    whole: bool
    sizes: tuple[tuple[float, float], ...] = ()


def parse_ranges(pages: str) -> list[tuple[int, int]]:
    """The runs of pages that a word such as `1-3,7` names, in order, joined where they touch."""
    runs: list[tuple[int, int]] = []
    parts = [[int(end) for end in part.split("-")] for part in pages.split(",")]
    for first, last in sorted((part[0], part[-1]) for part in parts):
        if first < 1 or last < first:
            raise WrongPages(f"The pages {first}-{last} cannot be: they count from 1, the smaller first.")
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(runs[-1][1], last))
        else:
            runs.append((first, last))
    return runs


def choose(pages: str | None, count: int, most: int) -> list[tuple[int, int]]:
    """The runs of pages to read. Raises Empty, WrongPages, or TooLarge for more than `most`."""
    if count < 1:
        raise Empty("The document has no pages.")
    runs = [(1, count)] if pages is None else parse_ranges(pages)
    if runs[-1][1] > count:
        raise WrongPages(f"The document has {count} pages, and options.pages asks for page {runs[-1][1]}.")
    asked = sum(last - first + 1 for first, last in runs)
    if asked > most:
        raise TooLarge(f"{asked} pages are more than the {most} that are read at once; choose some by options.pages.")
    return runs


def has_text(pdf: Pdf, runs: Sequence[tuple[int, int]]) -> list[bool]:
    """For each chosen page whether it has any text of its own."""
    return [pdf.chars[page - 1] >= _LEAST_CHARS for first, last in runs for page in range(first, last + 1)]


def check_drawn(pdf: Pdf, runs: Sequence[tuple[int, int]]) -> None:
    """Raise TooLarge for a chosen page that is too large to be drawn, as it has to be where a model looks at it."""
    for first, last in runs:
        for page, (width, height) in enumerate(pdf.sizes[first - 1 : last], first):
            if width * height * _DRAWN**2 > MOST_PIXELS:
                raise TooLarge(
                    f"Page {page} measures {width / 72:.0f} by {height / 72:.0f} inches, too much to be looked at; "
                    "take the profile 'native' with OCR off, or choose other pages by options.pages."
                )


def look_at(data: bytes, password: str | None) -> Pdf:
    """What PDFium sees. Raises PasswordNeeded, Damaged or Empty."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data, password=password)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == _PASSWORD:
            said = "is wrong" if password else "is missing"
            raise PasswordNeeded(f"The PDF is locked and its password {said}; send it in options.password.") from None
        if _no_pages(data):
            raise Empty("The PDF has no pages.") from None
        raise Damaged("The PDF cannot be opened: it is broken or cut short; send a sound copy.") from None
    try:
        count = len(document)
        if count < 1:
            raise Empty("The PDF has no pages.")
        chars = tuple(_chars(document, index) for index in range(count))
        sizes = tuple(document.get_page_size(index) for index in range(count))
    finally:
        document.close()
    return Pdf(chars, b"%%EOF" in data[-2048:], sizes)


def _chars(document: object, index: int) -> int:
    """The characters of a page; none for one that cannot be opened."""
    import pypdfium2

    try:
        page = document[index]  # type: ignore[index]
    except pypdfium2.PdfiumError:
        return 0
    try:
        text = page.get_textpage()
        found: int = len(text.get_text_bounded().strip())
        text.close()
    except pypdfium2.PdfiumError:
        return 0
    else:
        return found
    finally:
        page.close()


def _no_pages(data: bytes) -> bool:
    """Whether a file says of itself that it has no pages: PDFium opens none such."""
    return b"%%EOF" in data and (b"/Count 0" in data or b"/Kids []" in data or b"/Kids[]" in data)
