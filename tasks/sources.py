"""The files of a request that are named by URL: where they belong, and what came of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tasks.items import MAX_IMAGE_BYTES, FileField, ItemRequest, files_of

QUERY = -1
"""Stands for the query among the places of texts and files."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file to fetch: for the item at `place`, as file `number` of a field of its payload.

    `where` is what the request calls its URL. `most`: files of this kind have no more bytes, whatever else is taken.
    """

    place: int
    where: str
    url: str = field(repr=False)
    held_in: FileField
    number: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file, and what its server says it is (without parameters, in lower case; empty if it does not say)."""

    data: bytes = field(repr=False)
    media_type: str = ""


def sources_of(place: int, where: str, item: ItemRequest) -> list[Source]:
    """The files of this item that are to be fetched; `where` is what the request calls the item."""
    if item.images is None and item.document is None and item.audio is None and item.messages is None:
        return []
    return [
        Source(place, f"{where}.{at}.url", media.url, name, number, MAX_IMAGE_BYTES if name == "images" else None)
        for at, name, number, media in files_of(item)
        if media.url is not None
    ]
