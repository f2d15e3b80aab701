"""First come, first served: the baseline of a server that takes requests in order and loads what they need."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.types import Entry, Work
from tests.bench.simulation.record import Load, Record
from tests.bench.simulation.traffic import SimModel
from tests.bench.simulation.world import OVERHEAD_MS, Card


class InOrder:
    """The oldest item decides which model runs; the model's later items join its batch. A load stops the device.

    The models that were used last stay. Items join in the order of arrival, up to the card's bounds of a batch.
    """

    def __init__(self, models: Iterable[SimModel], card: Card) -> None:
        self._models = {m.name: m for m in models}
        self._card = card
        self._waiting: dict[str, deque[tuple[int, Entry]]] = {name: deque() for name in self._models}
        self._there: dict[str, int] = {}
        self._parked: dict[str, int] = {}
        self._left: dict[str, int] = {}
        self._came = 0
        self._now = 0.0
        self._record = Record(0.0, 0.0)

    def run(self, works: Iterable[Work], record: Record, drain_s: float) -> Record:
        """Play works as `World.run` does."""
        coming = iter(works)
        following = next(coming, None)
        self._record = record
        while (following is not None or self._left) and self._now < record.until + drain_s:
            while following is not None and following.arrived <= self._now:
                self._arrive(following)
                following = next(coming, None)
            if not self._left:
                assert following is not None, "either work waits or more comes"
                self._now = following.arrived
                continue
            model = self._models[min((q[0][0], name) for name, q in self._waiting.items() if q)[1]]
            if model.name in self._there:
                self._there[model.name] = self._there.pop(model.name)
                self._compute(model)
            else:
                self._load(model)
        record.left = len(self._left)
        return record

    def _arrive(self, work: Work) -> None:
        self._left[work.id] = len(work.items)
        for item in work.items:
            self._came += 1
            self._waiting[work.model].append((self._came, Entry(work, item)))

    def _compute(self, model: SimModel) -> None:
        queue = self._waiting[model.name]
        taken: list[Entry] = []
        longest = 0
        while queue and len(taken) < self._card.batch_items:
            longest = max(longest, queue[0][1].item.length)
            if taken and longest * (len(taken) + 1) > self._card.batch_tokens:
                break
            taken.append(queue.popleft()[1])
        longest = max(entry.item.length for entry in taken)
        self._pass((model.cost.batch(len(taken), longest) + OVERHEAD_MS) / 1000, busy=True)
        for work, item in ((entry.work, entry.item) for entry in taken):
            self._left[work.id] -= 1
            if not self._left[work.id]:
                del self._left[work.id]
                self._record.done.append((work, self._now))
            if self._record.counts(self._now):
                self._record.done_ms += item.cost_ms

    def _load(self, model: SimModel) -> None:
        while sum(self._there.values()) + model.bytes > self._card.budget:
            gone = next(iter(self._there))
            self._park(gone, self._there.pop(gone))
        returned = self._parked.pop(model.name, 0) > 0
        seconds = model.restore_s if returned else model.load_s
        self._pass(seconds, busy=False)
        self._there[model.name] = model.bytes
        self._record.loads.append(Load(model.name, self._now, seconds, returned))

    def _park(self, name: str, size: int) -> None:
        if size > self._card.host:
            return
        while sum(self._parked.values()) + size > self._card.host:
            del self._parked[next(iter(self._parked))]
        self._parked[name] = size

    def _pass(self, seconds: float, *, busy: bool) -> None:
        end = self._now + seconds
        spent = self._record.within(self._now, end)
        if busy:
            self._record.busy_s += spent
        else:
            self._record.starved_s += spent
        self._now = end
