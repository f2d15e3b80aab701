"""Which documents a backfill has: its files, the lines of its manifest, or what is found under its path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from api.feeding.reading import loads
from tasks.backfills.backfill import Document
from tasks.backfills.manifest import document_of, documents
from tasks.backfills.plan import SourceRequest
from tasks.backfills.sources import SourceRefused, Sources, SourceUnreadable
from tasks.blobs import Blobs
from tasks.lines import Fault

PAGE = 2000
"""Documents that are put into the database at once."""

LONGEST_NAME = 2500
"""In bytes: the most that the database can look up, and more than any `id` has."""


class Listing:
    """The documents page by page. Its calls block; call them from threads."""

    def __init__(self, source: SourceRequest, sources: Sources, blobs: Blobs, manifest: str | None) -> None:
        self._sources = sources
        self._entries = self._listed(source, blobs, manifest)

    def next(self) -> list[Document | Fault]:
        """Some more; none when there are none. Raises SourceRefused, SourceUnreadable, OSError."""
        return [_kept(one) for one in islice(self._entries, PAGE)]

    def _listed(self, source: SourceRequest, blobs: Blobs, manifest: str | None) -> Iterator[Document | Fault]:
        if source.path is not None:
            for number, found in enumerate(self._sources.find(source.path), 1):
                yield Document(number, found.name, found.path, found.fingerprint, found.size)
            return
        refs: Iterable[Document | Fault]
        if source.files is not None:
            refs = (document_of(number, ref) for number, ref in enumerate(source.files, 1))
        else:
            refs = documents(_chunks(blobs, manifest), loads)
        for one in refs:
            yield self._looked_at(one) if isinstance(one, Document) and not one.fingerprint else one

    def _looked_at(self, document: Document) -> Document | Fault:
        """A path with its size and what tells of changes. One that cannot be read fails when its turn comes."""
        try:
            found = self._sources.look(document.source)
        except SourceUnreadable:
            return document
        except SourceRefused as error:
            number = document.number
            return Fault(error.code, f"Line {number}: {error.message}", number, "path")
        return replace(document, size=found.size, fingerprint=found.fingerprint)


def _kept(one: Document | Fault) -> Document | Fault:
    if isinstance(one, Fault) or len(one.name.encode(errors="replace")) <= LONGEST_NAME:
        return one
    said = (
        f"Document {one.number}: what it is called is longer than {LONGEST_NAME} bytes; give it an 'id' in a manifest."
    )
    return Fault("name_too_long", said, one.number, "id")


def _chunks(blobs: Blobs, manifest: str | None) -> Any:
    if manifest is None:
        raise FileNotFoundError
    return blobs.chunks(manifest)
