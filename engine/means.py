"""What everybody who computes works with, handed on as one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from engine.costs import CostBook
from engine.device import Device, DeviceKind
from engine.errors import DeviceLost
from engine.hand import Hand, Run
from engine.limits import EngineLimits, lane_threads
from engine.passes import Passes
from engine.residency import Residency
from engine.roster import Roster
from engine.runner import use_threads
from engine.types import Finished, Listener


@dataclass(frozen=True, slots=True)
class Means:
    """The engine's parts. `lock` guards hand, passes, roster, and the schedulers; `lost` gives the device up."""

    device: Device
    limits: EngineLimits
    listener: Listener
    clock: Callable[[], float]
    lock: threading.RLock
    residency: Residency
    roster: Roster
    hand: Hand
    passes: Passes
    costs: CostBook
    lost: Callable[[DeviceLost], None]

    def threads(self, *, busy: bool) -> int:
        """How many threads a pass may compute with: one that is alone has all cores, side by side they share them."""
        return lane_threads(self.limits, self.device) if busy else self.device.cores

    def start(self, run: Run) -> float:
        """Tell that a pass begins and set its threads; when it began."""
        self.listener.batch_started(run.batch, self.limits.batch_limit_s)
        if self.device.kind is DeviceKind.CPU:
            use_threads(run.adapter, run.threads)
        return self.clock()

    def relief(self, model: str) -> Callable[[], bool]:
        """What may be done for a pass of this model that memory does not last for: evict from the memory it uses."""
        return partial(self.residency.relieve, model)

    def tell(self, done: Sequence[Finished]) -> None:
        """Tell of complete works. Without the lock."""
        if done:
            self.listener.finished(done)
