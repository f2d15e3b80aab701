"""The documents of a backfill as a manifest tells them: JSONL with one in each line. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from tasks.backfills.backfill import URL, Document
from tasks.backfills.plan import DocumentRef
from tasks.errors import TaskError
from tasks.lines import BadLine, Fault, RawLine, split
from tasks.request import explain

LONGEST_LINE = 64 * 1024


def document_of(number: int, ref: DocumentRef) -> Document:
    """The document that a reference names. An uploaded file never changes, so its id is its fingerprint.

    That of a path without one is empty: who can look at it finds one.
    """
    source = f"{URL}{ref.url}" if ref.url else ref.file or ref.path or ""
    # What follows the path of a URL may be a secret of its caller's.
    name = ref.id or source.removeprefix(URL).partition("?")[0].partition("#")[0] if ref.url else ref.id or source
    fingerprint = ref.fingerprint or ref.file or ref.url or ""
    return Document(number, name, source, fingerprint, 0, ref.metadata)


def documents(chunks: Iterable[bytes], loads: Callable[[bytes], Any]) -> Iterator[Document | Fault]:
    """The documents of a manifest that comes piece by piece, by the numbers of their lines, and what is wrong in it."""
    for raw in split(chunks, LONGEST_LINE):
        if raw.blank:
            continue
        try:
            yield document_of(raw.number, _ref(raw, loads))
        except BadLine as error:
            yield error.fault


def _ref(raw: RawLine, loads: Callable[[bytes], Any]) -> DocumentRef:
    def bad(code: str, message: str, param: str | None = None) -> BadLine:
        return BadLine(Fault(code, f"Line {raw.number}: {message}", raw.number, param))

    if raw.data is None:
        raise bad("line_too_long", f"it is longer than {LONGEST_LINE} bytes.")
    try:
        found = loads(raw.text)
    except TaskError as error:
        raise bad("invalid_json_line", error.message, error.param) from None
    try:
        return DocumentRef.model_validate(found)
    except ValidationError as error:
        wrong = explain(error.errors(include_url=False))
        raise bad(wrong.code, wrong.message, wrong.param) from None
