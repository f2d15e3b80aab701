"""A text of cells as one plain CSV, whatever separates them: what follows need not guess again."""

from __future__ import annotations

import csv
import io

from engine.documents.errors import Damaged, Empty
from engine.documents.formats import delimiter
from engine.documents.guards import check_rows

_LONGEST_CELL = 1_000_000


def as_csv(text: str, *, tabs: bool = False) -> str:
    """The cells with commas between them and quotes around them.

    `tabs` says that tabs separate. Otherwise what gives the first rows one width does; if nothing does, the mark that
    is most often in the first row. Raises Empty, Damaged or TooLarge.
    """
    mark = "\t" if tabs else delimiter(text) or _commonest(text)
    csv.field_size_limit(_LONGEST_CELL)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if any(row)]
    except csv.Error as error:
        raise Damaged("The CSV cannot be read: a cell is longer than a million characters, or broken.") from error
    if not rows:
        raise Empty("The CSV has no cells.")
    check_rows(rows)
    width = max(map(len, rows))
    written = io.StringIO(newline="")
    writer = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([cell.replace("\r\n", "\n") for cell in row] + [""] * (width - len(row)) for row in rows)
    return written.getvalue()


def _commonest(text: str) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "")
    best = max(",;\t|", key=first.count)
    return best if first.count(best) else ","
