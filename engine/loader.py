"""From a catalog entry to a loaded adapter, and back."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from catalog.schema import Spec
from catalog.weights import locate
from engine.adapters.base import Adapter, Place
from engine.device import Device, DeviceKind
from engine.errors import DeviceLost, EngineError, LoadFailed, LoadReason
from engine.failures import let_go, load_failure
from engine.families import adapter_class, read_options

log = logging.getLogger(__name__)


class Choice(Protocol):
    """A model and one of its profiles, as the catalog gives it."""

    @property
    def key(self) -> str:
        """The one spelling of its name."""

    @property
    def spec(self) -> Spec:
        """The model."""

    @property
    def load(self) -> Mapping[str, Any]:
        """The profile's load-time options."""


class Models(Protocol):
    """Finds models by the name that works carry; raises a CatalogError for one that it does not know."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The one spelling of every name."""

    def find(self, name: str, /) -> Choice:
        """The model and profile of a name."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load came to."""

    bytes: int
    seconds: float


def build_adapter(choice: Choice, device: Device, find: Callable[[Spec], Path | None] = locate) -> Adapter:
    """The adapter of a model, not loaded yet. May fetch its files. Raises LoadFailed."""
    spec = choice.spec
    family = adapter_class(spec.family)
    try:
        options = read_options(family, choice.load)
        folder = find(spec)
        return family(spec, options, folder, "cpu" if family.place is Place.HOST else device.name)
    except Exception as error:
        raise load_failure(spec.id, error) from error


def load_adapter(adapter: Adapter, device: Device, clock: Callable[[], float], *, alone: bool = True) -> Loaded:
    """Load and measure. Raises LoadFailed with its reason, or DeviceLost; what was half loaded is given back.

    What the process grew by says something only if no other load runs at the same time, that is if this one is `alone`.
    """
    before = device.probe().ours
    began = clock()
    failure = _met(adapter, adapter.load)
    if failure is not None:
        unload_adapter(adapter, device)
        raise failure
    seconds = clock() - began
    held = adapter.held()
    if held is None:
        held = adapter.footprint().weights
        if alone and device.kind is not DeviceKind.FAKE:
            # Pages that an earlier model left are used again and are no growth.
            held = max(held, device.probe().ours - before)
    return Loaded(held, seconds)


def restore_adapter(adapter: Adapter, device: Device, clock: Callable[[], float]) -> float | None:
    """Bring parked weights back; the seconds it took. None if that failed: then they are gone. Raises DeviceLost."""
    began = clock()
    failure = _met(adapter, adapter.restore)
    if failure is None:
        return clock() - began
    unload_adapter(adapter, device)
    if isinstance(failure, DeviceLost):
        raise failure
    log.warning("%s is loaded anew, since it could not be restored: %s", adapter.spec.id, failure.message)
    return None


def unload_adapter(adapter: Adapter, device: Device) -> None:
    """Drop the weights and give their memory back to the device, whatever it takes."""
    drop_weights(adapter)
    device.clear(thorough=True)


def drop_weights(adapter: Adapter) -> None:
    """Have the adapter let go of its weights. Its own failure in this is only logged."""
    try:
        adapter.unload()
    except Exception:
        log.exception("unloading %s failed", adapter.spec.id)


def _met(adapter: Adapter, call: Callable[[], None]) -> EngineError | None:
    """What a call failed with, if it did. It holds nothing of what was half loaded, so that this can be freed."""
    try:
        call()
    # Not only Exception: panics of Rust libraries and exits are none.
    except BaseException as error:
        failure = load_failure(adapter.spec.id, error)
        if failure is not error and isinstance(failure, LoadFailed) and failure.reason is LoadReason.UNKNOWN:
            log.warning("bringing %s met an error that nobody foresaw", adapter.spec.id, exc_info=True)
        let_go(error)
        return failure
    return None


class Reclaimer:
    """Has a device get back what a model has left.

    Weights are freed when the last name for them goes. Only where that has not brought the bytes back is something
    still tied in a cycle, and a collection worth its time: it stops every thread for as long as it looks at all objects
    of the process, some 0.2 s once torch is imported. It is done once in `every_s` at most.
    """

    def __init__(self, device: Device, clock: Callable[[], float], *, every_s: float = 30.0) -> None:
        self._device = device
        self._clock = clock
        self._every_s = every_s
        self._collected = -math.inf

    def ours(self) -> int:
        """What this process has on the device now; asked before a model leaves."""
        return self._device.probe().ours

    def after(self, before: int, size: int, *, urgent: bool = False) -> None:
        """A model of `size` bytes has left, and the process had `before` until then. `urgent`: memory is short now."""
        self._device.clear()
        if self._device.kind is DeviceKind.FAKE or before - self.ours() >= size // 2:
            return
        if urgent or self._clock() - self._collected >= self._every_s:
            self._device.clear(thorough=True)
            self._collected = self._clock()
