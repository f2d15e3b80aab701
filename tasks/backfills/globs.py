"""Globs of paths. Each part of a path is matched by itself and without going back, so that no glob takes long. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate

_MAGIC = re.compile(r"[*?\[]")
_ANY = "**"


class BadGlob(ValueError):
    """It cannot be a glob; says why."""


def is_glob(text: str) -> bool:
    """Whether it holds `*`, `?` or `[`."""
    return _MAGIC.search(text) is not None


class Glob:
    """`*` and `?` stand for what has no slash in it, `[…]` for one of these, `**` for any number of folders.

    Raises BadGlob.
    """

    def __init__(self, text: str) -> None:
        self._parts: list[re.Pattern[str] | None] = []
        for part in text.split("/"):
            if _ANY in part and part != _ANY:
                raise BadGlob(f"'{_ANY}' stands for folders, and must be alone between slashes")
            self._parts.append(None if part == _ANY else re.compile(translate(part)))

    def matches(self, path: str) -> bool:
        """Whether all of the path is what the glob says."""
        # Where in the glob one may be, all of them at once: there is nothing to try again.
        at = set(self._reached(0))
        for name in path.split("/"):
            at = {after for place in at for after in self._after(place, name)}
        return len(self._parts) in at

    def _after(self, place: int, name: str) -> Iterator[int]:
        if place == len(self._parts):
            return
        part = self._parts[place]
        if part is None:
            yield from self._reached(place)
        elif part.match(name):
            yield from self._reached(place + 1)

    def _reached(self, place: int) -> Iterator[int]:
        yield place
        while place < len(self._parts) and self._parts[place] is None:
            place += 1
            yield place
