"""What tests of a residency look through: what it tells, what it says of its models, and an account of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.account import Share
from engine.errors import DeviceLost, EngineError
from engine.residency import Residency
from engine.snapshot import ModelState
from tests.unit.engine.recorder import PATIENCE_S


class Watching:
    """Keeps what a residency tells, and lets a test wait for it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.events: list[tuple[str, str]] = []
        self.errors: dict[str, EngineError] = {}

    def _note(self, event: str, model: str) -> None:
        with self.changed:
            self.events.append((event, model))
            self.changed.notify_all()

    def load_started(self, model: str) -> None:
        self._note("started", model)

    def load_ended(self, model: str) -> None:
        self._note("ended", model)

    def ready(self, model: str) -> None:
        self._note("ready", model)

    def left(self, model: str) -> None:
        self._note("left", model)

    def refused(self, model: str, error: EngineError) -> None:
        self.errors[model] = error
        self._note("refused", model)

    def lost(self, error: DeviceLost) -> None:
        self.errors["device"] = error
        self._note("lost", "device")

    def until(self, event: str, model: str, times: int = 1) -> None:
        with self.changed:
            happened = self.changed.wait_for(lambda: self.events.count((event, model)) >= times, PATIENCE_S)
        assert happened, f"{model} was not {event}; there were {self.events}"

    def never(self, event: str, model: str, within_s: float = 0.05) -> None:
        with self.changed:
            assert not self.changed.wait_for(lambda: (event, model) in self.events, within_s)


class Pool:
    """An account of `total` bytes of which others hold `taken` and wait for `waited_for`.

    It keeps what it is told and refuses what it has not.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0
        self.share = Share()
        self.asked = 0
        self.most = 0
        self.wanted = 0
        self.waited_for = 0
        self.closed = False

    def hold(self, share: Share, *, force: bool = False) -> bool:
        self.asked += 1
        if not force and share.held > self.share.held and share.held + self.taken > self.total:
            return False
        self.share = share
        self.most = max(self.most, share.held)
        return True

    def room(self) -> int:
        return max(0, self.total - self.taken - self.share.held)

    def want(self, count: int) -> None:
        self.wanted = count

    def pressed(self, gives: int) -> bool:
        return self.room() < self.waited_for <= self.room() + gives + self.taken

    def short(self, taken: int) -> int:
        return max(0, self.share.held - self.total)

    def others(self) -> Share:
        return Share(self.taken, 0)

    def tell_foreign(self) -> str:
        return "foreign, pid 1 has all of it"

    def close(self) -> None:
        self.closed = True


MakeResidency = Callable[..., Residency]


def state(residency: Residency, model: str) -> ModelState:
    return next(m for m in residency.snapshot()[0] if m.model == model)


def held(residency: Residency, *models: str) -> None:
    """Load these models one after the other, and let go of them."""
    for model in models:
        residency.acquire(model, PATIENCE_S)
        residency.release(model)
