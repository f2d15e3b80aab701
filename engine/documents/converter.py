"""One document through Docling, in a process of the pool: looked at, checked, converted, brought into shape."""

from __future__ import annotations

import io
import warnings as python_warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from docling.datamodel.base_models import ConversionStatus, DocumentStream, FailureCategory, InputFormat
from docling.exceptions import ConversionError
from docling_core.types.doc.common.content_layer import ContentLayer
from docling_core.types.doc.document import DoclingDocument
from pydantic import SecretStr

from engine.documents import guards
from engine.documents.encoding import Decoded, decode, told_charset
from engine.documents.errors import ConversionFailed, Damaged, Empty, TimedOut, TooLarge, UnsupportedFormat, WrongPages
from engine.documents.formats import PAGED, TEXTS, Format, hinted, signature, text_format
from engine.documents.pages import Pdf, check_drawn, choose, has_text, look_at
from engine.documents.pipelines import Pipelines
from engine.documents.shape import result, table, warning, without_pictures
from engine.documents.tabular import as_csv
from engine.errors import EngineError

Run = tuple[int, int]

_INPUT = {
    Format.PDF: (InputFormat.PDF, "document.pdf"),
    Format.DOCX: (InputFormat.DOCX, "document.docx"),
    Format.PPTX: (InputFormat.PPTX, "document.pptx"),
    Format.XLSX: (InputFormat.XLSX, "document.xlsx"),
    Format.HTML: (InputFormat.HTML, "document.html"),
    Format.MD: (InputFormat.MD, "document.md"),
    Format.CSV: (InputFormat.CSV, "document.csv"),
}


@dataclass(slots=True)
class Looked:
    """A document before it is converted: what it is, its bytes as the library gets them, which pages are read."""

    kind: Format
    data: bytes
    runs: Sequence[Run] = ()
    blank: tuple[bool, ...] = ()
    """For each page that is read whether it has no text of its own; empty where there are no pages."""

    whole: bool = True
    warnings: list[dict[str, str]] = field(default_factory=list)


class Converter:
    """The models of one profile, and the way of a document through them. Not thread-safe: a process has one."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Load what every document needs. Raises what the library raises where models cannot be had."""
        # Docling tells of odd files by warnings, which nobody reads here.
        python_warnings.simplefilter("ignore")
        self._most_pages = int(settings["most_pages"])
        self._pipelines = Pipelines(settings)

    def convert(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A caller's data. Raises an EngineError of `engine.documents.errors` for a document that cannot be read.

        `request` has `data`, `format`, `name`, `options` and `soft_s`: seconds after which a PDF ends with the pages
        that it has.
        """
        options = request["options"]
        looked = self._look(request, options)
        ocr = _ocr(looked, options)
        documents: list[DoclingDocument] = []
        runs: Sequence[Run | None] = looked.runs or [None]
        partial = not looked.whole
        for run in runs:
            document, complete = self._one(looked, run, ocr, options, float(request["soft_s"]))
            documents.append(document)
            if not complete:
                partial = True
                looked.warnings.append(
                    warning(
                        "partial", "The time was up, or a page failed: pages are missing. Send fewer by options.pages."
                    )
                )
                break
        document = documents[0] if len(documents) == 1 else DoclingDocument.concatenate(documents)
        return _shaped(document, looked, ocr, partial)

    def _look(self, request: Mapping[str, Any], options: Mapping[str, Any]) -> Looked:
        data, pages = request["data"], options.get("pages")
        hint, unknown = hinted(request.get("format"), request.get("name"))
        kind = signature(data)
        if kind is None:
            looked = _look_at_text(data, request.get("format"), hint, unknown)
        elif kind is Format.PDF:
            pdf = look_at(data, options.get("password"))
            looked = self._chosen(Looked(kind, data, whole=pdf.whole), pages, pdf)
            if self._pipelines.draws(ocr=_ocr(looked, options)):
                check_drawn(pdf, looked.runs)
        elif kind is Format.IMAGE:
            frames = _frames(data)
            looked = self._chosen(Looked(kind, data), pages, Pdf((0,) * frames, whole=True))
        else:
            guards.check_packed(data, kind)
            looked = Looked(kind, data)
        if pages is not None and looked.kind not in PAGED:
            raise WrongPages(f"A {looked.kind.value} file has no pages to choose; leave options.pages out.")
        return looked

    def _chosen(self, looked: Looked, pages: str | None, pdf: Pdf) -> Looked:
        looked.runs = choose(pages, len(pdf.chars), self._most_pages)
        looked.blank = tuple(not text for text in has_text(pdf, looked.runs))
        if not looked.whole:
            looked.warnings.append(
                warning("damaged", "The file has no proper end: it may be cut short, and pages may be missing.")
            )
        return looked

    def _one(
        self, looked: Looked, run: Run | None, ocr: bool | None, options: Mapping[str, Any], soft_s: float
    ) -> tuple[DoclingDocument, bool]:
        """The document of one run of pages, and whether it is complete."""
        if looked.kind is Format.IMAGE:
            name, format_ = f"document.{_image_ending(looked.data)}", InputFormat.IMAGE
        else:
            format_, name = _INPUT[looked.kind]
        password = options.get("password")
        converter = self._pipelines.ready(
            format_,
            ocr=ocr,
            tables=bool(options.get("tables", True)),
            password=SecretStr(password) if password else None,
            seconds=soft_s,
        )
        limits: dict[str, Any] = {"max_num_pages": self._most_pages} if run is None else {"page_range": run}
        try:
            done = converter.convert(
                DocumentStream(name=name, stream=io.BytesIO(looked.data)), raises_on_error=False, **limits
            )
        except EngineError:
            raise
        except ConversionError as error:
            raise Damaged(f"The {looked.kind.value} file cannot be opened ({type(error).__name__}).") from error
        if done.status is ConversionStatus.SUCCESS:
            return done.document, True
        late = any(error.category is FailureCategory.TIMEOUT for error in done.errors)
        if done.status is ConversionStatus.PARTIAL_SUCCESS and done.document.pages:
            return done.document, False
        raise _failure(looked.kind, done.errors, late)


def _ocr(looked: Looked, options: Mapping[str, Any]) -> bool | None:
    """What is read as a picture: nothing where only pages without text would be, and there are none."""
    ocr: bool | None = options.get("ocr")
    return False if ocr is None and not any(looked.blank) else ocr


def _look_at_text(data: bytes, said: str | None, hint: Format | None, unknown: str | None) -> Looked:
    if unknown is not None:
        raise UnsupportedFormat(
            f"Files of the kind {unknown[:40]!r} are not read; "
            "send PDF, DOCX, PPTX, XLSX, HTML, Markdown, CSV or an image."
        )
    if hint is not None and hint not in TEXTS:
        raise Damaged(f"The file is said to be {hint.value} and does not begin as such; send a sound copy.")
    decoded: Decoded = decode(data, told_charset(said))
    kind = text_format(decoded.text, hint)
    text = decoded.text
    if kind is Format.CSV:
        text = as_csv(text, tabs=(said or "").strip().lower().startswith(("tsv", "tab", "text/tab")))
    elif kind is Format.HTML:
        guards.check_markup(text)
        # Its own word for its charset may be another than it has now; a mark goes before it.
        text = "\ufeff" + text
    looked = Looked(kind, text.encode("utf-8", "replace"))
    if decoded.guessed:
        how = f"The text was read as {decoded.encoding}, which is a guess."
        looked.warnings.append(
            warning("encoding_guessed", f'{how} If letters are wrong, tell it: format: "text/csv; charset=…".')
        )
    return looked


def _frames(data: bytes) -> int:
    """How many pictures a file holds. Raises Damaged, or TooLarge for one of too many pixels."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = image.width * image.height
            frames = int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1
            if 0 < pixels <= guards.MOST_PIXELS:
                # One that is cut short shows itself only when it is decoded.
                image.load()
    except Image.DecompressionBombError:
        pixels, frames = guards.MOST_PIXELS + 1, 1
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError) as error:
        raise Damaged("The image cannot be opened: it is broken or cut short; send a sound copy.") from error
    if pixels > guards.MOST_PIXELS:
        raise TooLarge(f"The image has more than {guards.MOST_PIXELS:,} pixels; send a smaller one.")
    if pixels < 1:
        raise Empty("The image has no pixels.")
    return frames


def _image_ending(data: bytes) -> str:
    starts = {b"\x89PNG": "png", b"\xff\xd8": "jpg", b"GIF8": "gif", b"RIFF": "webp", b"BM": "bmp"}
    return next((ending for start, ending in starts.items() if data.startswith(start)), "tiff")


def _failure(kind: Format, errors: Sequence[Any], late: bool) -> EngineError:
    """Why nothing came of a document. The library's own words may quote it, so only their kind is told."""
    if late:
        return TimedOut()
    said = " ".join(str(error.error_message) for error in errors)
    if "recursion" in said.lower():
        return TooLarge(f"The {kind.value} file is nested too deep; send a flatter one.")
    if "MemoryError" in said or "bad_alloc" in said or "Unable to allocate" in said:
        return TooLarge("Reading the document takes more memory than it may; send fewer pages, or a smaller file.")
    if "max_num_pages" in said:
        return TooLarge("The document has more pages than are read at once; send it in parts.")
    if not any(error.category is FailureCategory.BACKEND_FAILURE for error in errors):
        return ConversionFailed("The converter met an error of its own in this document; send it in another form.")
    return Damaged(f"The {kind.value} file cannot be read: it is broken, or not what it seems; send a sound copy.")


def _shaped(document: DoclingDocument, looked: Looked, ocr: bool | None, partial: bool) -> dict[str, Any]:
    tables = []
    for found in document.tables:
        grid = [[(cell.text, bool(cell.column_header)) for cell in row] for row in found.data.grid]
        page = found.prov[0].page_no if found.prov else None
        tables.append(table(grid, page, found.export_to_markdown(doc=document)))
    pages = len(document.pages) or None
    warnings = looked.warnings
    blank = sum(looked.blank)
    # What OCR read inside a picture would be left out, which may be all of a page.
    whole: dict[str, Any] = {"traverse_pictures": blank > 0 and ocr is not False}
    text = document.export_to_text(**whole)
    if not text.strip():
        # So would headers and footers, which may be all of a document.
        whole = {"traverse_pictures": True, "included_content_layers": {ContentLayer.BODY, ContentLayer.FURNITURE}}
        text = document.export_to_text(**whole)
    markdown = document.export_to_markdown(**whole)
    if not _has_text(text, tables):
        why = "OCR is off, and " if blank and ocr is False else ""
        warnings.append(warning("no_text", f"No text was found: {why}the document may hold pictures alone."))
    elif blank and ocr is False:
        said = f"{blank} pages have no text of their own and OCR is off; they were not read."
        warnings.append(warning("pages_without_text", said))
    return result(
        markdown=markdown,
        text=text,
        tables=tables,
        document=without_pictures(document.export_to_dict()),
        pages=pages,
        format_=looked.kind.value,
        partial=partial,
        warnings=warnings,
    )


def _has_text(text: str, tables: Sequence[Mapping[str, Any]]) -> bool:
    """Whether anything was read: the rules and bars of a table alone are nothing."""
    if not tables:
        return bool(text.strip())
    filled = any(cell.strip() for found in tables for row in (*found["header"], *found["rows"]) for cell in row)
    return filled or any(char.isalnum() for char in text)
