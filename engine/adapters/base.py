"""The contract of a model family. One module in this folder is one family, found by its name; nothing registers it.

The module defines exactly one subclass of Adapter named `<Family>Adapter` and a pydantic model of load-time options.
Heavy libraries are imported inside `load`, so that reading the catalog costs nothing. The contract suite in
`tests/adapters/` finds every module here by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from catalog.schema import Spec
from catalog.terms import Verb
from engine.types import Batch, Footprint, Outcome


class LoadOptions(BaseModel):
    """Base of every family's load-time options. Strict: a typo in a YAML is an error that names the field."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Adapter(ABC):
    """One model of one family on one device. Runs never overlap on one adapter unless it is `reentrant`.

    Life: `__init__` (cheap, no memory) → `footprint` → `load` → many `run` → `unload` (gives all memory back); then
    perhaps `load` again, on the same object.
    """

    options: ClassVar[type[LoadOptions]] = LoadOptions
    reentrant: ClassVar[bool] = False
    """Whether `run` may be called from several threads at once over the same weights."""

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        self.spec = spec
        self.load_options = options
        self.folder = folder
        self.device = device

    @classmethod
    def group(cls, verb: Verb, options: Any) -> Hashable:
        """What separates batches of this family: items run together only if this is equal. None mixes all options."""
        return None

    @abstractmethod
    def footprint(self) -> Footprint:
        """Bytes this model will take, estimated before the load from file headers and config."""

    @abstractmethod
    def load(self) -> None:
        """Put the weights on the device. Raises LoadFailed with its reason."""

    @abstractmethod
    def unload(self) -> None:
        """Drop every reference to weights and buffers, so that the memory comes back."""

    @abstractmethod
    def run(self, batch: Batch) -> Sequence[Outcome]:
        """One outcome per entry, in the order of the entries.

        An item that cannot be read becomes an EngineError in its place and leaves its neighbours alone. Raises
        OutOfMemory or DeviceLost for the whole batch; any other exception is isolated to an item by the runner.
        """

    def held(self) -> int | None:
        """Bytes that the loaded weights take, by the framework's own count; None lets the engine probe the device."""
        return None

    def interrupt(self) -> None:  # noqa: B027 - a family may have nothing to interrupt
        """Ask a load or run in progress to end soon, by any error. Called from another thread; may do nothing."""
