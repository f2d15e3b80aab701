"""The works in hand, and the passes that run for them. Guarded by the engine's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from catalog.terms import Lane
from engine.adapters.base import Adapter, Place
from engine.errors import EngineError
from engine.progress import Progress
from engine.types import Batch, Entry, Finished, Outcome, Work


@dataclass(slots=True)
class Run:
    """A pass in flight: the adapter it holds, the activation bytes it was lent, the threads it may use.

    `items` is how many are computed at once, 0 for all; `lacking` the bytes that it waits for.
    `crowded` turns true once another pass has run beside it where it runs.
    """

    batch: Batch
    place: Place
    adapter: Adapter
    lent: int
    threads: int
    predicted_ms: float
    padded: bool = True
    crowded: bool = False
    items: int = 0
    lacking: int = 0
    owners: dict[str, Progress] = field(default_factory=dict)


class Hand:
    """What was submitted and is not told yet, and what runs of it, on the device and beside it.

    `ids` numbers the passes. Once it is `stopping` or `lost`, nothing more begins. `together` says that all places
    share the same cores, so that passes in different ones crowd each other too.
    """

    def __init__(self, loading: Callable[[str], float], clock: Callable[[], float], *, together: bool) -> None:
        self.running: dict[int, Run] = {}
        self.ids = count(1)
        self.stopping = False
        self.lost = False
        self._works: dict[str, Progress] = {}
        self._loading = loading
        self._clock = clock
        self._together = together

    def __contains__(self, work_id: object) -> bool:
        return work_id in self._works

    @property
    def open(self) -> bool:
        """Whether a pass may begin."""
        return not (self.stopping or self.lost)

    @property
    def quiet(self) -> bool:
        """Whether nothing is in hand and nothing runs."""
        return not self._works and not self.running

    @property
    def alone(self) -> bool:
        """Whether a pass runs that nothing may run beside."""
        return any(run.batch.alone for run in self.running.values())

    def bulk(self, place: Place) -> int:
        """How many passes of the bulk lane run there."""
        return sum(run.place is place and run.batch.lane is Lane.BULK for run in self.running.values())

    def holds(self, entry: Entry) -> bool:
        """Whether this very work is in hand still; one that was cancelled may have come again under its id."""
        progress = self._works.get(entry.work.id)
        return progress is not None and progress.work is entry.work

    def take(self, work: Work) -> None:
        """Take in a work."""
        self._works[work.id] = Progress(work, self._loading(work.model))

    def drop(self, work_id: str) -> Work | None:
        """Forget a work without telling of it; None if it is not in hand."""
        progress = self._works.pop(work_id, None)
        return None if progress is None else progress.work

    def untouched(self) -> list[str]:
        """The works of which nothing has run, in the order of their arrival."""
        return [work_id for work_id, progress in self._works.items() if not progress.started]

    def give_up(self, work_id: str, error: EngineError) -> list[Finished]:
        """End a work with this error for all of its items; empty if it is not in hand."""
        progress = self._works.pop(work_id, None)
        return [] if progress is None else [progress.failed(error, self._clock(), self._loading(progress.work.model))]

    def refuse(self, work: Work, error: EngineError) -> Finished:
        """The end of a work that was never taken in."""
        return Progress(work, 0.0).failed(error, self._clock(), 0.0)

    def begin(self, run: Run) -> None:
        """A pass is about to run."""
        now, works, owners = self._clock(), self._works, run.owners
        for entry in run.batch.entries:
            work = entry.work
            progress = works.get(work.id)
            if progress is not None and progress.work is work and work.id not in owners:
                owners[work.id] = progress
                progress.began(now)
        for other in self.running.values():
            if self._together or other.place is run.place:
                other.crowded = run.crowded = True
        self.running[run.batch.id] = run

    def end(self, run: Run, outcomes: Sequence[Outcome | None], began: float, ended: float) -> list[Finished]:
        """A pass has run: file its outcomes, None for what goes on, and return the works that they complete."""
        self.abandon(run)
        works, owners, parts = self._works, run.owners, dict[str, float]()
        for entry, outcome, part in zip(run.batch.entries, outcomes, run.batch.parts, strict=True):
            work_id = entry.work.id
            parts[work_id] = parts.get(work_id, 0.0) + part
            owner = owners.get(work_id)
            if outcome is not None and owner is not None and works.get(work_id) is owner:
                owner.put(entry.item.index, outcome)
        done = []
        loading = self._loading(run.batch.model)
        for work_id, owner in owners.items():
            owner.ran(began, ended, parts[work_id])
            if not owner.left and works.get(work_id) is owner:
                del works[work_id]
                done.append(owner.finished(ended, loading))
        return done

    def put(self, entry: Entry, outcome: Outcome) -> list[Finished]:
        """An item came to this without running; returns its work if that completes it."""
        if not self.holds(entry):
            return []
        progress = self._works[entry.work.id]
        progress.put(entry.item.index, outcome)
        if progress.left:
            return []
        del self._works[entry.work.id]
        return [progress.finished(self._clock(), self._loading(entry.work.model))]

    def abandon(self, run: Run) -> None:
        """A pass does not run any more."""
        del self.running[run.batch.id]
