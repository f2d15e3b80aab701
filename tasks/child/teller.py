"""Tells texts as they are generated to those who follow their jobs.

A thread of its own publishes what has gathered since its last call, so that a step never waits for the broker, and a
slow broker makes fewer and longer pieces. Pieces may be lost and a follower may come late, so each text is told from
its beginning now and then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from engine.types import Piece as Made
from tasks.child.wakes import Wakes
from tasks.notices import Piece

log = logging.getLogger(__name__)

WHOLE_FIRST_S = 0.05
WHOLE_EVERY_S = 1.0
"""A text that grows is told from its beginning after the first of these, then after twice as long each time, and in
the end this often: whoever submits a job and then follows it misses its first words, and should not wait for them."""

MOST_WHOLE = 256 * 1024
"""Characters up to which a text is told from its beginning. Who misses a part of a longer one gets it at the end."""


@dataclass(slots=True)
class _Text:
    """One item's text so far, how much of it was told, when it was last told whole, and how soon it is again."""

    text: str
    told: int
    whole_at: float
    every_s: float = WHOLE_FIRST_S


class Teller:
    """One for each engine child."""

    def __init__(self, wakes: Wakes, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._wakes = wakes
        self._clock = clock
        self._condition = threading.Condition()
        self._texts: dict[tuple[str, int], _Text] = {}
        self._grown: dict[tuple[str, int], None] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="teller", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; what was not told is in the results."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def put(self, made: Sequence[Made]) -> None:
        """More of some texts. A text that begins anew, at 0, replaces what was there: its job runs again."""
        with self._condition:
            for piece in made:
                key = (piece.work, piece.index)
                text = self._texts.get(key)
                if text is None or piece.start == 0:
                    text = self._texts[key] = _Text("", 0, self._clock())
                text.text = text.text[: piece.start] + piece.text
                self._grown[key] = None
            self._condition.notify()

    def forget(self, works: Iterable[str]) -> None:
        """These jobs are over: their texts are told by their results."""
        gone = set(works)
        with self._condition:
            for key in [key for key in self._texts if key[0] in gone]:
                del self._texts[key]
                self._grown.pop(key, None)

    def due(self) -> list[Piece]:
        """What is to be told now. Under no lock of the caller's."""
        with self._condition:
            return self._take()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._grown and not self._closed:
                    self._condition.wait()
                if self._closed:
                    return
                pieces = self._take()
            self._wakes.said(pieces)

    def _take(self) -> list[Piece]:
        now, pieces = self._clock(), []
        for work, index in self._grown:
            text = self._texts[work, index]
            start = text.told
            if now - text.whole_at >= text.every_s and len(text.text) <= MOST_WHOLE:
                start, text.whole_at = 0, now
                text.every_s = min(2 * text.every_s, WHOLE_EVERY_S)
            pieces.append(Piece(UUID(work), index, start, text.text[start:]))
            text.told = len(text.text)
        self._grown.clear()
        return pieces
