"""Hearing how jobs end, by the channel that workers tell it on: so that rows are read once, when there is something."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from api.feeding.halt import Halt
from tasks.jobs import State
from tasks.notices import Change

SLOW_S = 2.0
"""How often the rows are read of jobs of which nothing is heard: a change can be lost."""

DEAF_S = 0.25
"""How often while nothing can be heard."""


@dataclass(slots=True)
class Progress:
    """How many lines of a part have ended so far."""

    completed: int = 0
    failed: int = 0


@dataclass(slots=True, eq=False)
class Watch:
    """Some jobs that are waited for: those `left`, and a place to count the others at."""

    endings: Endings
    left: set[UUID]
    progress: Progress
    _look: asyncio.Event = field(default_factory=asyncio.Event)

    def drop(self, ids: Iterable[UUID]) -> None:
        """These are not waited for any more."""
        self.left.difference_update(ids)
        if not self.left:
            self._look.set()

    def ended(self, id_: UUID, state: State) -> None:
        """One has ended."""
        if id_ not in self.left:
            return
        if state is State.SUCCEEDED:
            self.progress.completed += 1
        else:
            self.progress.failed += 1
        self.drop([id_])

    def doubt(self) -> None:
        """Something may have been missed."""
        self._look.set()

    async def wait(self, halt: Halt) -> None:
        """Return when it is time to read the rows: all were heard to end, or something may have been missed."""
        await halt.sleep(self.endings.pause_s, self._look)
        self._look.clear()


class Endings:
    """One for each feeder, told by its link."""

    def __init__(self) -> None:
        self._watches: dict[UUID, Watch] = {}
        self._hears = False

    @property
    def pause_s(self) -> float:
        """How long rows are not read of which nothing is heard."""
        return SLOW_S if self._hears else DEAF_S

    @contextmanager
    def watching(self, ids: Sequence[UUID], progress: Progress) -> Iterator[Watch]:
        """Listen for the ends of these jobs: begin before they can end."""
        watch = Watch(self, set(ids), progress)
        self._watches.update(dict.fromkeys(ids, watch))
        try:
            yield watch
        finally:
            for id_ in ids:
                self._watches.pop(id_, None)

    def heard(self, changes: Sequence[Change]) -> None:
        """Some jobs have changed."""
        for change in changes:
            if (watch := self._watches.get(change.id)) is not None and (state := State(change.state)).final:
                watch.ended(change.id, state)

    def up(self) -> None:
        """From now on changes are heard; what came before may have been missed."""
        self._hears = True
        for watch in set(self._watches.values()):
            watch.doubt()

    def down(self) -> None:
        """Nothing is heard."""
        self._hears = False
