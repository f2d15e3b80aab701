"""Limits that are checked before a library opens a file: what would take minutes or gigabytes is refused at once."""

from __future__ import annotations

import re
import zipfile
import zlib
from io import BytesIO

from engine.documents.errors import Damaged, TooLarge
from engine.documents.formats import Format

MOST_UNPACKED = 200 * 2**20
"""Bytes that a packed office file may unpack to."""

MOST_PARTS = 10_000
MOST_CELLS = 200_000
"""Cells of a workbook or a CSV."""

MOST_DEPTH = 250
"""How deep the tags of markup may be nested. At some 500 the converter runs out of stack."""

MOST_TAGS = 300_000
MOST_PIXELS = 89_478_485
"""Of one image: what Pillow takes for a bomb."""

_CELL = re.compile(rb"<(?:\w+:)?c[ >/]")
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]*+)[^<>]*?(/?)>")
_OPEN_ENDED = frozenset(
    "area base br col embed hr img input link meta param source track wbr p li dt dd tr td th thead tbody tfoot option"  # noqa: SIM905 - words
    " colgroup optgroup rb rt rp".split()
)
"""Elements that need no end: their number says nothing of depth."""


def check_packed(data: bytes, kind: Format) -> None:
    """Raise TooLarge for a bomb, or a workbook with too many cells; Damaged for parts that do not unpack."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts = archive.infolist()
        if len(parts) > MOST_PARTS:
            raise TooLarge(f"The file packs {len(parts)} parts, the most is {MOST_PARTS}; send a smaller one.")
        size = sum(part.file_size for part in parts)
        if size > MOST_UNPACKED:
            raise TooLarge(
                f"The file unpacks to {size >> 20} MiB, the most is {MOST_UNPACKED >> 20}; send a smaller one."
            )
        if kind is Format.XLSX:
            sheets = [part for part in parts if part.filename.startswith("xl/worksheets/")]
            _check_cells(archive, sheets)


def _check_cells(archive: zipfile.ZipFile, sheets: list[zipfile.ZipInfo]) -> None:
    cells = 0
    try:
        for sheet in sheets:
            with archive.open(sheet) as stream:
                tail = b""
                while block := stream.read(2**20):
                    # A tag that is cut between two blocks is counted with the later one.
                    cut = block.rfind(b"<")
                    cells += len(_CELL.findall(tail + block[:cut]))
                    tail = block[cut:] if cut >= 0 else tail + block
                    if cells > MOST_CELLS:
                        raise TooLarge(
                            f"The workbook has more than {MOST_CELLS:,} cells; send its sheets in parts, or as CSV."
                        )
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        raise Damaged("A sheet of the workbook does not unpack; send a sound copy.") from None


def check_markup(text: str) -> None:
    """Raise TooLarge for tags nested so deep, or so many, that reading them would not end."""
    depth: dict[str, int] = {}
    deep = tags = 0
    for found in _TAG.finditer(text):
        tags += 1
        name = found[2].lower()
        if name in _OPEN_ENDED or found[3]:
            continue
        level = depth.get(name, 0)
        if found[1]:
            if level:
                depth[name] = level - 1
                deep -= 1
            continue
        depth[name] = level + 1
        deep += 1
        if deep > MOST_DEPTH:
            raise TooLarge(f"The markup nests tags more than {MOST_DEPTH} deep; send a flatter page.")
    if tags > MOST_TAGS:
        raise TooLarge(f"The markup has {tags:,} tags, the most is {MOST_TAGS:,}; send it in parts.")


def check_rows(rows: list[list[str]]) -> None:
    """Raise TooLarge for a table with too many cells."""
    cells = sum(map(len, rows))
    if cells > MOST_CELLS:
        raise TooLarge(f"The table has {cells:,} cells, the most is {MOST_CELLS:,}; send it in parts.")
