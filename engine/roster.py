"""What the engine knows of a model before it is loaded, looked up once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from catalog.errors import CatalogError
from catalog.schema import Spec
from catalog.terms import Verb
from engine.adapters.base import Place, StepAdapter
from engine.batcher import Bounds
from engine.costs import CostBook
from engine.device import Device
from engine.errors import LoadFailed, LoadReason
from engine.families import adapter_class
from engine.limits import EngineLimits, bounds, floor_tokens
from engine.loader import Models


@dataclass(frozen=True, slots=True)
class Known:
    """A model's key and spec, how its options group, where its work is done and whether step by step.

    `least` is how many tokens a batch of it needs room for.
    """

    key: str
    spec: Spec
    group: Callable[[Verb, Any], Hashable]
    place: Place
    stepped: bool
    least: int


class Roster:
    """The models that works have named. Not locked: its owner is."""

    def __init__(self, catalog: Models, limits: EngineLimits, device: Device, costs: CostBook) -> None:
        self._catalog = catalog
        self._limits = limits
        self._device = device
        self._costs = costs
        self._known: dict[str, Known] = {}
        self._bounds: dict[str, Bounds] = {}

    def key(self, name: str) -> str:
        """The one spelling of a name. Raises UnknownModel."""
        return self._catalog.find(name).key

    def renew(self, name: str) -> bool:
        """Take a model's new definition. False where that needs a new process: it runs in another way now.

        One that is not in the catalog any more stays as it was, for the works that are in hand.
        """
        before = self._known.pop(name, None)
        if before is None:
            return True
        after = None if self.look_up(name) is not None else self._known[name]
        if after is None or (after.place, after.stepped) != (before.place, before.stepped):
            self._known[name] = before
            return after is None
        self._bounds.pop(name, None)
        return True

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
        spec = choice.spec
        least = min(floor_tokens(self._limits, self._device), spec.max_length)
        stepped = issubclass(family, StepAdapter)
        self._known[name] = Known(choice.key, spec, family.group, family.place, stepped, least)
        return None

    def bounds(self, name: str, padded: bool) -> Bounds:
        """What a batch of the model may be while there is room, by what is known of its cost until now."""
        found = self._bounds.get(name)
        if found is None or found.padded is not padded:
            spec = self._known[name].spec
            found = replace(bounds(name, spec, self._limits, self._device, self._costs), padded=padded)
            self._bounds[name] = found
        return found

    def learned(self, name: str) -> None:
        """More is known of the model's cost now."""
        self._bounds.pop(name, None)
