"""Finding out early which models of the catalog can never fit, so that jobs for them are refused when they come."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from catalog.errors import RoostError
from catalog.footprint import expected_weights, never_fits
from catalog.schema import Spec
from engine.adapters.base import Place
from engine.device import Device, DeviceKind
from engine.families import adapter_class
from engine.ledger import Ledger
from engine.loader import Choice, Models, build_adapter
from engine.placement import too_large

log = logging.getLogger(__name__)

_POLL_S = 0.5
_BENEVOLENCE = 0.9
"""A model is refused for a guess of its size only if a tenth less would be too much as well."""
_NICE = 10


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a model takes, in bytes. `read` tells that its files say so; else it is guessed from its parameters."""

    weights: int
    floor: int
    read: bool


class Survey:
    """Looks once at every model of the catalog, in a thread that gives way to loads. Downloads nothing."""

    def __init__(
        self,
        models: Models,
        device: Device,
        ledger: Ledger,
        pinned: Iterable[str],
        floor_tokens: int,
        find_here: Callable[[Spec], Path | None],
        idle: Callable[[], bool],
    ) -> None:
        self._models = models
        self._device = device
        self._budget = ledger.budget
        self._pinned = tuple(dict.fromkeys(pinned))
        self._floor_tokens = floor_tokens
        self._find_here = find_here
        self._idle = idle
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="survey", daemon=True)
        self.done = threading.Event()
        self.too_large: Mapping[str, str] = MappingProxyType({})

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look at no more models."""
        self._stopped.set()

    def forget(self, model: str) -> None:
        """What was found out of this model is true no more."""
        self.too_large = MappingProxyType({key: why for key, why in self.too_large.items() if key != model})

    def estimate(self, choice: Choice) -> Estimate | None:
        """What a model takes of the device, by its files if they are here, else by its spec; None if nobody can say."""
        try:
            if adapter_class(choice.spec.family).place is Place.HOST and self._device.kind is not DeviceKind.CPU:
                return None
            footprint = build_adapter(choice, self._device, self._find_here).footprint()
        except Exception as error:  # noqa: BLE001 - one odd folder must not hide what is true of all other models
            # Not here, or not whole: that is the load's to say, and may have changed by then.
            if not isinstance(error, RoostError):
                log.debug("the files of %s do not tell its size: %r", choice.key, error)
            weights = expected_weights(choice.spec, choice.load)
            return Estimate(weights, 0, read=False) if weights else None
        floor = footprint.per_token * min(self._floor_tokens, choice.spec.max_length)
        return Estimate(footprint.weights, floor, read=True)

    def look(self) -> Mapping[str, str]:
        """The models that can never fit beside the pinned ones, each with the reason.

        The pinned ones come first, in their order: one that does not fit beside those before it takes no room.
        """
        beside = 0
        found: dict[str, str] = {}
        for key in dict.fromkeys((*self._pinned, *self._models.keys)):
            while not self._stopped.is_set() and not self._idle():
                self._stopped.wait(_POLL_S)
            if self._stopped.is_set():
                break
            estimate = self._estimate(key)
            if estimate is None:
                continue
            weights = estimate.weights if estimate.read else int(estimate.weights * _BENEVOLENCE)
            if never_fits(weights, estimate.floor, self._budget, beside):
                found[key] = too_large(key, estimate.weights, estimate.floor, self._budget, beside)
            elif key in self._pinned:
                beside += estimate.weights
        return found

    def _estimate(self, key: str) -> Estimate | None:
        return self.estimate(self._models.find(key))

    def _serve(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            # On Linux this is the thread's own.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            self.too_large = MappingProxyType(dict(self.look()))
        except Exception:
            log.exception("looking for models that are too large failed; they are found out when they are loaded")
        for reason in self.too_large.values():
            log.debug("%s", reason)
        if self.too_large:
            log.info(
                "%d models of the catalog can never fit here, such as %s", len(self.too_large), min(self.too_large)
            )
        self.done.set()
