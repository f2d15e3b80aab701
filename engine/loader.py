"""From a catalog entry to a loaded adapter, and back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from catalog.schema import Spec
from catalog.weights import locate
from engine.adapters.base import Adapter
from engine.device import Device, DeviceKind
from engine.failures import load_failure
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
        return family(spec, options, folder, device.name)
    except Exception as error:
        raise load_failure(spec.id, error) from error


def load_adapter(adapter: Adapter, device: Device, clock: Callable[[], float]) -> Loaded:
    """Load and measure. Raises LoadFailed with its reason, or DeviceLost; what was half loaded is given back."""
    before = device.probe().ours
    began = clock()
    try:
        adapter.load()
    except Exception as error:
        failure = load_failure(adapter.spec.id, error)
        unload_adapter(adapter, device)
        raise failure from error
    seconds = clock() - began
    held = adapter.held()
    if held is None:
        # A fake device has nothing to measure; elsewhere what the process grew by is the best there is.
        grown = device.probe().ours - before
        held = adapter.footprint().weights if device.kind is DeviceKind.FAKE else max(grown, 0)
    return Loaded(held, seconds)


def unload_adapter(adapter: Adapter, device: Device) -> None:
    """Drop the weights and give their memory back to the device."""
    drop_weights(adapter)
    device.clear()


def drop_weights(adapter: Adapter) -> None:
    """Have the adapter let go of its weights. Its own failure in this is only logged."""
    try:
        adapter.unload()
    except Exception:
        log.exception("unloading %s failed", adapter.spec.id)
