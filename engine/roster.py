"""What the engine knows of a model before it is loaded, looked up once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from catalog.errors import CatalogError
from catalog.terms import Verb
from engine.batcher import Bounds
from engine.device import Device
from engine.errors import LoadFailed, LoadReason
from engine.families import adapter_class
from engine.limits import EngineLimits, bounds, floor_tokens
from engine.loader import Models


@dataclass(frozen=True, slots=True)
class Known:
    """A model's key, how its options group, what its batches may be, and how many tokens a batch needs room for."""

    key: str
    group: Callable[[Verb, Any], Hashable]
    bounds: Bounds
    least: int


class Roster:
    """The models that works have named. Not locked: its owner is."""

    def __init__(self, catalog: Models, limits: EngineLimits, device: Device) -> None:
        self._catalog = catalog
        self._limits = limits
        self._device = device
        self._known: dict[str, Known] = {}

    def key(self, name: str) -> str:
        """The one spelling of a name. Raises UnknownModel."""
        return self._catalog.find(name).key

    def __getitem__(self, name: str) -> Known:
        return self._known[name]

    def look_up(self, name: str) -> LoadFailed | None:
        """Make a model known; the reason if it cannot be."""
        if name in self._known:
            return None
        try:
            choice = self._catalog.find(name)
            family = adapter_class(choice.spec.family)
        except CatalogError as error:
            return LoadFailed(error.message, LoadReason.CONFIG)
        except LoadFailed as error:
            return error
        allowed = bounds(choice.spec, self._limits, self._device)
        least = min(allowed.tokens, floor_tokens(self._limits, self._device), choice.spec.max_length)
        self._known[name] = Known(choice.key, family.group, allowed, least)
        return None
