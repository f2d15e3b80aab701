"""The deadlines of waiting works, the earliest first. Pure."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

_SPARE = 256


class Deadlines:
    """Deadlines with the ids of their works. An entry may outlive its work, of which it keeps nothing alive."""

    def __init__(self, stands: Callable[[float, str], bool]) -> None:
        """`stands` tells whether a work waits still, with this deadline."""
        self._stands = stands
        self._heap: list[tuple[float, str]] = []
        self._room = _SPARE

    @property
    def first(self) -> float | None:
        """The earliest; perhaps that of a work which has just left."""
        return self._heap[0][0] if self._heap else None

    def add(self, deadline: float, work_id: str) -> None:
        """Watch a work that waits."""
        if len(self._heap) >= self._room:
            self._heap = [entry for entry in self._heap if self._stands(*entry)]
            heapify(self._heap)
            self._room = 2 * len(self._heap) + _SPARE
        heappush(self._heap, (deadline, work_id))

    def passed(self, now: float) -> str | None:
        """A work that waits and whose deadline has passed, which is watched no longer."""
        while self._heap and (self._heap[0][0] <= now or not self._stands(*self._heap[0])):
            deadline, work_id = heappop(self._heap)
            if self._stands(deadline, work_id):
                return work_id
        return None
