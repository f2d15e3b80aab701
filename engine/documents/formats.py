"""What a file is, by its content; its name and the caller's word only tell apart what has no signature."""

from __future__ import annotations

import csv
import re
import zipfile
from enum import StrEnum
from io import BytesIO

from engine.documents.errors import Damaged, Empty, PasswordNeeded, UnsupportedFormat


class Format(StrEnum):
    """What is read. The value is what a result says."""

    PDF = "pdf"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"
    HTML = "html"
    MD = "md"
    CSV = "csv"
    IMAGE = "image"


TEXTS = frozenset({Format.HTML, Format.MD, Format.CSV})
PAGED = frozenset({Format.PDF, Format.IMAGE})
"""Formats whose pages may be chosen."""

_HINTS = {
    **dict.fromkeys(("pdf", "application/pdf"), Format.PDF),
    **dict.fromkeys(("docx", "docm", "dotx", "dotm"), Format.DOCX),
    **dict.fromkeys(("pptx", "pptm", "potx", "ppsx"), Format.PPTX),
    **dict.fromkeys(("xlsx", "xlsm", "xltx", "xltm"), Format.XLSX),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": Format.DOCX,
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": Format.PPTX,
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": Format.XLSX,
    **dict.fromkeys(("html", "htm", "xhtml", "text/html", "application/xhtml+xml"), Format.HTML),
    **dict.fromkeys(("md", "markdown", "txt", "text", "text/markdown", "text/plain"), Format.MD),
    **dict.fromkeys(("csv", "tsv", "tab", "text/csv", "text/tab-separated-values"), Format.CSV),
    **dict.fromkeys(("png", "jpg", "jpeg", "jpe", "tif", "tiff", "bmp", "webp", "gif", "image"), Format.IMAGE),
    **dict.fromkeys((f"image/{kind}" for kind in ("png", "jpeg", "tiff", "bmp", "webp", "gif")), Format.IMAGE),
}
_IMAGES = re.compile(
    rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|II\*\x00|MM\x00\*|GIF8[79]a|RIFF....WEBP|BM....\x00\x00\x00\x00", re.DOTALL
)
_OFFICE = (("word/", Format.DOCX), ("ppt/", Format.PPTX), ("xl/", Format.XLSX))
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_MARKUP = re.compile(
    # Possessive: what a comment took it keeps, or a page of them could be cut in more ways than there is time for.
    r"\s*+(?:<\?xml[^>]*+>\s*+)?+(?:<!--.*?-->\s*+)*+<(!doctype\s+html|html|head|body|table|div)\b",
    re.IGNORECASE | re.DOTALL,
)
_DELIMITERS = ",;\t|"


def hinted(format_: str | None, name: str | None) -> tuple[Format | None, str | None]:
    """What the caller's word says, else the name's ending: the format, and the word itself where it is none we read."""
    words = [(format_ or "").partition(";")[0].strip().lower().lstrip(".")]
    if name and "." in name:
        words.append(name.rsplit(".", 1)[-1].strip().lower())
    words = [word for word in words if word and word != "application/octet-stream"]
    known = next((_HINTS[word] for word in words if word in _HINTS), None)
    return known, None if known else next(iter(words), None)


def signature(data: bytes) -> Format | None:
    """The format of a file that tells it by its first bytes; None for what may be text.

    Raises PasswordNeeded, Damaged or UnsupportedFormat for what it is and what cannot be read.
    """
    if not data.strip(b"\x00 \t\r\n\x0c"):
        raise Empty("The file has nothing in it." if data else "The file has no bytes.")
    if b"%PDF-" in data[:1024]:
        return Format.PDF
    if _IMAGES.match(data):
        return Format.IMAGE
    if data.startswith(_OLE):
        if _ENCRYPTED in data:
            raise PasswordNeeded("The office file is locked with a password; send an unlocked copy.")
        raise UnsupportedFormat("The file is of an old office format; save it as DOCX, PPTX or XLSX.")
    if data.startswith(b"PK"):
        return _packed(data)
    if data.startswith((b"\x7fELF", b"MZ", b"\x1f\x8b", b"7z\xbc\xaf", b"Rar!", b"{\\rtf")):
        raise UnsupportedFormat
    return None


def text_format(text: str, hint: Format | None) -> Format:
    """What a text is. Raises Damaged if it was said to be something that is no text, Empty for blanks."""
    if not text.strip():
        raise Empty("The file holds nothing but blanks.")
    if hint is not None and hint not in TEXTS:
        raise Damaged(f"The file is said to be {hint.value}, and is not: it has no such beginning.")
    if hint is not None:
        return hint
    if _MARKUP.match(text):
        return Format.HTML
    return Format.CSV if delimiter(text) else Format.MD


def delimiter(text: str) -> str | None:
    """What separates the cells, if the first rows have all the same number of them, and more than one."""
    lines = text.splitlines(keepends=True)[:200]
    best = (1, "")
    for mark in _DELIMITERS:
        try:
            widths = {len(row) for row in csv.reader(lines[: 100 if len(lines) > 100 else None], delimiter=mark) if row}
        except csv.Error:
            continue
        width = widths.pop() if len(widths) == 1 and len(lines) > 1 else 0
        if width > best[0]:
            best = (width, mark)
    return best[1] or None


def _packed(data: bytes) -> Format:
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = archive.namelist()
            locked = any(info.flag_bits & 1 for info in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        raise Damaged("The file begins as a packed office file does and is broken or cut short.") from None
    if locked:
        raise PasswordNeeded("The packed file is locked with a password; send an unlocked copy.")
    if "[Content_Types].xml" not in names:
        raise UnsupportedFormat("The file is an archive, and no DOCX, PPTX or XLSX; send its files one by one.")
    found = next((kind for start, kind in _OFFICE if any(name.startswith(start) for name in names)), None)
    if found is None:
        raise UnsupportedFormat("The file is an office file of a kind that is not read; send DOCX, PPTX or XLSX.")
    return found
