"""Rows as a Parquet file, written row group by row group. Needs pyarrow, the extra `backfills`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from api.media import dumps
from tasks.blobs import Blobs
from tasks.lines import split

GROUP_BYTES = 8 * 2**20
"""Lines of JSON in one row group, unless one document has more."""

_TYPES: Mapping[str, Any] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "texts": pa.list_(pa.string()),
    "floats": pa.list_(pa.float32()),
    "ints": pa.list_(pa.int32()),
    "rows": pa.list_(pa.list_(pa.float32())),
    "sparse": pa.struct({"indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32())}),
    "json": pa.string(),
}
_MERGED = {frozenset({"int", "float"}): "float", frozenset({"ints", "floats"}): "floats"}
_FIRST = ("document", "metadata", "chunk", "page", "headings", "text")


def kinds_of(columns: Iterable[str]) -> dict[str, str]:
    """The kind of each column, in the order of the table. What is now this and now that is JSON in a text."""
    found: dict[str, set[str]] = {}
    for column in columns:
        name, _, kind = column.rpartition(":")
        found.setdefault(name, set()).add(kind)
    order = [name for name in _FIRST if name in found] + sorted(found.keys() - set(_FIRST))
    return {
        name: next(iter(found[name])) if len(found[name]) == 1 else _MERGED.get(frozenset(found[name]), "json")
        for name in order
    }


class Table:
    """One file. Its calls block; what is not finished leaves nothing behind."""

    def __init__(self, blobs: Blobs, key: str, columns: Iterable[str]) -> None:
        self._blobs = blobs
        self._kinds = kinds_of(columns)
        self._schema = pa.schema([(name, _TYPES[kind]) for name, kind in self._kinds.items()])
        self._stack = ExitStack()
        self._file = self._stack.enter_context(blobs.writing(key))
        self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._size = 0
        self._done = False

    def add(self, keys: Sequence[str]) -> None:
        """Add the rows of these blobs."""
        for key in keys:
            for line in split(self._blobs.chunks(key), 2**63):
                if line.data:
                    self._rows.append(self._row(orjson.loads(line.data)))
                    self._size += line.size
                    if self._size >= GROUP_BYTES:
                        self._flush()

    def finish(self) -> int:
        """Make the file whole; its size."""
        self._flush()
        self._writer.close()
        size = self._file.tell()
        self._done = True
        self._stack.close()
        return size

    def close(self) -> None:
        """Leave nothing of it, unless it is whole."""
        if not self._done:
            # Left to itself it writes its end when it is collected, into a file that is closed by then.
            with suppress(OSError, pa.ArrowException):
                self._writer.close()
            unfinished = InterruptedError("the table was not finished")
            self._stack.__exit__(type(unfinished), unfinished, None)

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
            self._rows, self._size = [], 0

    def _row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: dumps(row[name]).decode() if kind == "json" and row.get(name) is not None else row.get(name)
            for name, kind in self._kinds.items()
        }
