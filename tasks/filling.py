"""Putting fetched files where their URLs stand. Pure. A file that could not be had is the fault of its item alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from catalog.errors import RoostError
from catalog.lengths import media_length
from tasks.errors import as_data
from tasks.prepare import Checked
from tasks.sources import QUERY, Fetched, Source

Found = Mapping[Source, Fetched | RoostError]
"""What came of every source of a request."""

_FORMATS = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "text/markdown": "md",
}
_ENDINGS = frozenset({"html", "htm", "csv", "tsv", "md", "txt"})


def filled(checked: Checked, found: Found) -> Checked:
    """The request with its files. Raises the error of a file of the query, without which there is nothing to do."""
    items, base, faults = list(checked.items), list(checked.base), dict(checked.faults)
    query = checked.query
    of: dict[int, list[Source]] = {}
    for source in checked.sources:
        of.setdefault(source.place, []).append(source)
    for place, sources in of.items():
        error = next((one for source in sources if isinstance(one := found[source], RoostError)), None)
        if place == QUERY:
            if error is not None:
                raise error
            query = _with_files(query or {}, sources, found)
            continue
        items[place] = _with_files(items[place], sources, found)
        if error is None:
            base[place] = media_length(checked.choice.spec, items[place])
        else:
            faults.setdefault(place, as_data(error))
    return replace(checked, items=items, query=query, base=base, faults=faults, sources=())


def _with_files(payload: Mapping[str, Any], sources: list[Source], found: Found) -> dict[str, Any]:
    """The item with its files in place of their URLs; what could not be had is empty, and its item does not run."""
    whole = dict(payload)
    if "images" in whole:
        whole["images"] = list(whole["images"])
    for source in sources:
        held = whole["images"][source.number] if source.held_in == "images" else whole[source.held_in]
        file = {name: value for name, value in held.items() if name != "url"}
        match found[source]:
            case Fetched() as came:
                file["data"] = came.data
                if source.held_in == "document" and not ("format" in file or "name" in file):
                    file |= _hint(came.media_type, source.url)
            case _:
                file["data"] = b""
        if source.held_in == "images":
            whole["images"][source.number] = file
        else:
            whole[source.held_in] = file
    return whole


def _hint(media_type: str, url: str) -> dict[str, str]:
    """What tells texts apart that have no signature: what the server says, or else how the URL's path ends."""
    ending = urlsplit(url).path.rpartition(".")[2].lower()
    word = _FORMATS.get(media_type) or (ending if ending in _ENDINGS else None)
    return {} if word is None else {"format": word}
