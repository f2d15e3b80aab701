"""What a caller gets of a document: markdown, text, tables, Docling's own JSON, and what has to be said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""U+0000 and lone surrogates: a database takes neither."""


def clean(value: Any) -> Any:
    """The same value with U+FFFD in place of every character that cannot be stored, in keys as well."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value) if _UNSTORABLE.search(value) else value
    if isinstance(value, Mapping):
        return {clean(key): clean(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [clean(part) for part in value]
    return value


def warning(code: str, message: str) -> dict[str, str]:
    """Something that the caller should know of a result that stands."""
    return {"code": code, "message": message}


def table(grid: list[list[tuple[str, bool]]], page: int | None, markdown: str) -> dict[str, Any]:
    """A table as rows of texts. A cell is its text and whether it heads a column; spans repeat their text.

    `header` are the rows at the top of which every cell heads a column.
    """
    heads = 0
    while heads < len(grid) and grid[heads] and all(head for _, head in grid[heads]):
        heads += 1
    texts = [[text for text, _ in row] for row in grid]
    found: dict[str, Any] = {"header": texts[:heads], "rows": texts[heads:], "markdown": markdown}
    return found if page is None else {"page": page, **found}


def without_pictures(document: dict[str, Any]) -> dict[str, Any]:
    """Docling's JSON without the bytes of pictures and pages, which would be larger than all else together."""
    for picture in document.get("pictures", ()):
        picture.pop("image", None)
    for page in document.get("pages", {}).values():
        page.pop("image", None)
    return document


def result(
    *,
    markdown: str,
    text: str,
    tables: list[dict[str, Any]],
    document: dict[str, Any],
    pages: int | None,
    format_: str,
    partial: bool,
    warnings: list[dict[str, str]],
) -> dict[str, Any]:
    """The whole, with nothing in it that cannot be stored."""
    found: dict[str, Any] = clean(
        {
            "markdown": markdown,
            "text": text,
            "tables": tables,
            "document": document,
            "pages": pages,
            "format": format_,
            "partial": partial,
            "warnings": warnings,
        }
    )
    return found
