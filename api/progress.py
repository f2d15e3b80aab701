"""How far running jobs have come, as their workers tell it: a hint that each API process keeps for itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from uuid import UUID

from tasks.jobs import State
from tasks.notices import Change

MOST = 10_000
"""Jobs that are remembered; the one that was heard of longest ago makes room."""


class Progress:
    """The items done of jobs that run. A job whose news were missed has none."""

    def __init__(self) -> None:
        self._done: OrderedDict[UUID, int] = OrderedDict()

    def heard(self, changes: Sequence[Change]) -> None:
        """Some jobs have changed, anywhere."""
        for change in changes:
            if State(change.state) is not State.RUNNING:
                self._done.pop(change.id, None)
            elif change.items_done:
                self._done[change.id] = change.items_done
                self._done.move_to_end(change.id)
                if len(self._done) > MOST:
                    self._done.popitem(last=False)

    def of(self, id_: UUID) -> int:
        """How many items of a running job are known to be done."""
        return self._done.get(id_, 0)
