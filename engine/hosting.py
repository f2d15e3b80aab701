"""Host memory as a place for evicted models: coming back from it is a copy, and no file is read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from engine.device import Device, DeviceKind
from engine.loader import drop_weights, restore_adapter
from engine.placement import Placement
from engine.slot import Slot
from engine.snapshot import Phase, Reason

log = logging.getLogger(__name__)


class Hosting:
    """Moves weights to host memory and back, within the host's books. Called without the lock, which it takes."""

    def __init__(
        self,
        placement: Placement,
        device: Device,
        changed: threading.Condition,
        clock: Callable[[], float],
    ) -> None:
        self._placement = placement
        self._host = placement.host
        self._device = device
        self._changed = changed
        self._clock = clock

    @property
    def apart(self) -> bool:
        """Whether a parked model's weights lie in other memory than a resident one's."""
        return self._device.kind is not DeviceKind.CPU

    def park(self, slot: Slot) -> bool:
        """Move a leaving model's weights to host memory. False if they do not go there; the model is as before."""
        adapter = slot.adapter
        with self._changed:
            size = self._placement.book(slot).held(slot.model)
            victims = self._placement.plan_park(slot, size, self._clock()) if size else None
            if adapter is None or victims is None:
                return False
            dropped = [self._sent_off(self._placement.slots[model]) for model in victims]
            self._host.hold(slot.model, size, 0)
        for other in dropped:
            self.drop(other, Reason.ROOM)
        try:
            taken = adapter.park()
        except Exception:
            log.exception("parking %s in host memory failed", slot.model)
            taken = None
        with self._changed:
            if taken is None:
                self._host.free(slot.model)
                return False
            slot.host = taken
            self._host.hold(slot.model, taken, 0)
        return True

    def settle(self) -> None:
        """Drop parked models, the least valuable first, until the host's books are within their budget."""
        while True:
            with self._changed:
                slot = self._placement.least_parked(self._clock()) if self._host.excess > 0 else None
                if slot is None:
                    return
                self._sent_off(slot)
            self.drop(slot, Reason.ROOM)

    def drop_least(self, reason: Reason) -> bool:
        """Drop the least valuable parked model, to have its memory. False if none is parked."""
        with self._changed:
            slot = self._placement.least_parked(self._clock())
            if slot is None:
                return False
            self._sent_off(slot)
        self.drop(slot, reason)
        return True

    def restore(self, slot: Slot) -> bool:
        """Bring a parked model's weights back to the device. False if that failed, and then they are gone."""
        adapter = slot.adapter
        if adapter is None:
            return False
        seconds = restore_adapter(adapter, self._device, self._clock)
        with self._changed:
            slot.host = 0
            self._host.free(slot.model)
            if seconds is None:
                return False
            slot.restore_s = seconds
            slot.restores += 1
        return True

    def lose(self, slot: Slot) -> None:
        """A model that was to come back cannot: its copy is dropped."""
        if slot.adapter is not None:
            drop_weights(slot.adapter)
        with self._changed:
            slot.host = 0
            self._host.free(slot.model)

    def _sent_off(self, slot: Slot) -> Slot:
        """Nobody loads it again before its memory is back."""
        slot.phase = Phase.LEAVING
        return slot

    def drop(self, slot: Slot, reason: Reason) -> None:
        """Let go of what a model that is leaving has in host memory."""
        if slot.adapter is not None:
            drop_weights(slot.adapter)
        with self._changed:
            slot.phase, slot.host = Phase.ABSENT, 0
            slot.dropped[reason] = slot.dropped.get(reason, 0) + 1
            self._host.free(slot.model)
            if slot.outdated:
                slot.renew()
            self._changed.notify_all()
        log.info("%s dropped from host memory (%s)", slot.model, reason)
