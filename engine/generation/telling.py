"""Text from tokens as they come: never half a character, and nothing that a stop text may still take back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_HALF = "\ufffd"
_PENDING = 3
"""Bytes that may wait for the rest of their character, each shown as one sign of a half one."""


class Telling:
    """The text of one sequence. `said` only grows; `text` is what is known, and ends before a stop text."""

    def __init__(self, decode: Callable[[list[int]], str], stops: Sequence[str] = (), opening: str = "") -> None:
        """`decode` gives the text of some tokens, control tokens left out. The text begins with `opening`."""
        self._decode = decode
        self._stops = tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._ids: list[int] = []
        self._from = self._clean = self._shown = 0
        self._opened = len(opening)
        self.text = opening
        self.stopped = False

    def add(self, token: int) -> bool:
        """One more token. Whether a stop text has ended the text."""
        self._ids.append(token)
        window = self._decode(self._ids[self._from :])
        stable = window
        for _ in range(_PENDING):
            stable = stable.removesuffix(_HALF)
        if len(stable) > self._shown:
            before = len(self.text)
            self.text += stable[self._shown :]
            self._shown = len(stable)
            self._look(max(self._opened, before - self._longest + 1))
        if stable == window:
            self._from, self._clean = self._clean, len(self._ids)
            self._shown = len(self._decode(self._ids[self._from :]))
        return self.stopped

    @property
    def said(self) -> str:
        """The text that will not change: what might be the beginning of a stop text is held back."""
        if self.stopped:
            return self.text
        for length in range(min(self._longest - 1, len(self.text) - self._opened), 0, -1):
            tail = self.text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return self.text[:-length]
        return self.text

    def _look(self, begin: int) -> None:
        places = [place for stop in self._stops if (place := self.text.find(stop, begin)) >= 0]
        if places:
            self.text = self.text[: min(places)]
            self.stopped = True
