"""What a model wrote, told apart as it comes: thoughts, words, calls of functions. Pure.

The same reader takes a whole text or its pieces, so that a stream tells what the reply without one would. A thought is
what a text has between `<think>` at its very beginning and `</think>`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from api.compat.openai.toolcalls import Call, Tools, begins, calls_in, listed_calls, unfinished

_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Thought:
    """More of what the model thinks aloud."""

    text: str


@dataclass(frozen=True, slots=True)
class Words:
    """More of the answer."""

    text: str


Part = Thought | Words | Call


@dataclass(frozen=True, slots=True)
class Calling:
    """Which calls a text may hold. `only`: it is the arguments of this function; `locked`: a list of calls."""

    tools: Tools
    only: str | None = None
    locked: bool = False


class Reader:
    """The parts of one text. Without `calling` nothing in it is a call."""

    def __init__(self, calling: Calling | None = None) -> None:
        self._calling = calling
        self._held = ""
        self._said = False
        self._step = self._beginning
        if calling is not None and (calling.only or calling.locked):
            self._step = self._hold

    def more(self, text: str) -> list[Part]:
        """What can be told after this piece. Empty texts are left out."""
        self._held += text
        return [part for part in self._step() if not isinstance(part, Words | Thought) or part.text]

    def end(self) -> list[Part]:
        """What is left at the end of the text."""
        held, self._held, calling = self._held, "", self._calling
        if self._step == self._thinking:
            return [Thought(held.rstrip())] if held.strip() else []
        if calling is None:
            return [Words(held)] if held else []
        if calling.only is not None:
            return [Call(calling.only, held)]
        if calling.locked:
            calls = listed_calls(held, calling.tools)
            words = "" if calls else held
        else:
            words, calls = calls_in(held, calling.tools)
        return [*([Words(words)] if words else []), *calls]

    def _beginning(self) -> Iterator[Part]:
        """Until it is known whether the text begins with a thought."""
        bare = self._held.lstrip()
        if bare.startswith(_OPEN):
            self._held = bare.removeprefix(_OPEN)
            self._step = self._thinking
        elif _OPEN.startswith(bare):
            return
        else:
            self._step = self._speaking
        yield from self._step()

    def _thinking(self) -> Iterator[Part]:
        if not self._said:
            self._held = self._held.lstrip()
        thought, closed, rest = self._held.partition(_CLOSE)
        if closed:
            self._held, self._said, self._step = rest, False, self._answering
            yield Thought(thought.rstrip())
            yield from self._step()
            return
        known = len(thought[: len(thought) - unfinished(thought, (_CLOSE,))].rstrip())
        self._said = self._said or known > 0
        yield Thought(thought[:known])
        self._held = thought[known:]

    def _answering(self) -> Iterator[Part]:
        """After a thought, until its answer begins."""
        self._held = self._held.lstrip()
        if self._held:
            self._step = self._speaking
            yield from self._step()

    def _speaking(self) -> Iterator[Part]:
        known = len(self._held)
        if self._calling is not None:
            known = begins(self._held, first=not self._said)
        self._said = self._said or known > 0
        yield Words(self._held[:known])
        self._held = self._held[known:]

    def _hold(self) -> Iterator[Part]:
        yield from ()


def parts_of(text: str, calling: Calling | None) -> list[Part]:
    """The parts of a whole text."""
    reader = Reader(calling)
    return [*reader.more(text), *reader.end()]
