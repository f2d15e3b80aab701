"""What a command line says of a job: its items, from arguments, files or standard input, and its options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

_ROWS = frozenset({".jsonl", ".ndjson"})


def items_of(texts: Sequence[str], files: Sequence[Path], stdin: TextIO) -> Iterator[Any]:
    """The items, read as they are asked for: texts; the lines of `-`; then the files, each by its kind.

    A `.jsonl` has an item in each line, a text or an object; a `.txt` a text in each line; any other file is an item.
    """
    for text in texts:
        if text == "-":
            yield from _texts(stdin)
        else:
            yield text
    for file in files:
        kind = file.suffix.lower()
        if kind in _ROWS:
            with file.open(encoding="utf-8") as rows:
                yield from _objects(rows, file)
        elif kind == ".txt":
            with file.open(encoding="utf-8") as rows:
                yield from _texts(rows)
        else:
            yield file


def options_of(pairs: Sequence[str]) -> dict[str, Any]:
    """Options from `name=value`. A value is JSON where it can be read as that, and a text otherwise."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} must read name=value, such as normalize=false", param_hint="'--option'")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def schema_of(text: str | None) -> Any:
    """A schema, given as JSON or as `@file`."""
    if text is None:
        return None
    try:
        return json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except ValueError as error:
        raise click.BadParameter(f"no JSON: {error}", param_hint="'--schema'") from None


def _texts(rows: Iterable[str]) -> Iterator[str]:
    for row in rows:
        if row.strip():
            yield row.rstrip("\r\n")


def _objects(rows: Iterable[str], file: Path) -> Iterator[Any]:
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            yield json.loads(row)
        except ValueError as error:
            raise click.ClickException(f"{file}, line {number}: no JSON: {error}") from None
