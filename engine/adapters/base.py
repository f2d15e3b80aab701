"""The contract of a model family. One module in this folder is one family, found by its name; nothing registers it.

The module defines exactly one subclass of Adapter named `<Family>Adapter` and a pydantic model of load-time options.
Heavy libraries are imported inside `load`, so that reading the catalog costs nothing. The contract suite in
`tests/adapters/` finds every module here by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from catalog.schema import Spec
from catalog.terms import Verb
from engine.errors import EngineError
from engine.types import Batch, Entry, Footprint, Outcome


class LoadOptions(BaseModel):
    """Base of every family's load-time options. Strict: a typo in a YAML is an error that names the field."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Place(StrEnum):
    """Where a family's work is done: on the device, or by the host's cores beside it (parsing, OCR on a CPU)."""

    DEVICE = "device"
    HOST = "host"


class Adapter(ABC):
    """One model of one family on one device. Runs never overlap on one adapter unless it is `reentrant`.

    Life: `__init__` (cheap, no memory) → `footprint` → `load` → many `run` → `unload` (gives all memory back); then
    perhaps `load` again, on the same object. Instead of `unload`, a loaded model may `park` and later `restore`.
    """

    options: ClassVar[type[LoadOptions]] = LoadOptions
    place: ClassVar[Place] = Place.DEVICE
    reentrant: ClassVar[bool] = False
    """Whether `run` may be called from several threads at once over the same weights."""

    unpadded: bool = False
    """Whether the loaded model computes the real tokens of a batch alone, whatever their lengths; true after `load`."""

    most_items: int = 0
    """How many items a batch may have at most, 0 for any number: for items each of which may take all of its time."""

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

    def use_threads(self, count: int) -> None:  # noqa: B027 - torch is told by the engine
        """Compute with so many threads in the calls that follow from this thread, where torch's own setting is not it.

        Called on a CPU before every run, perhaps while other threads run.
        """

    def held(self) -> int | None:
        """Bytes that the loaded weights take, by the framework's own count; None lets the engine probe the device."""
        return None

    def measured_per_token(self) -> int | None:
        """Peak activation bytes of one padded token, as seen in the batches so far; None if the family cannot tell.

        Asked after every batch, so it takes no time. It stands in for the estimate from then on, also for later loads.
        """
        return None

    @property
    def parks(self) -> bool:
        """Whether `park` is worth asking: others may have to leave host memory first."""
        return type(self).park is not Adapter.park

    def park(self) -> int | None:
        """Move the weights from the device to host memory; the bytes they take there. None if the family cannot.

        After it nothing is left on the device, and `restore` or `unload` follows.
        """
        return None

    def restore(self) -> None:
        """Bring parked weights back: a copy, no file is read. Raises LoadFailed or OutOfMemory."""
        raise NotImplementedError

    def interrupt(self) -> None:  # noqa: B027 - a family may have nothing to interrupt
        """Ask a load or run in progress to end soon, by any error. Called from another thread; may do nothing."""


class TokenSequence:
    """One item that is being generated. A family subclasses it to keep what it needs, its cache among it.

    `prompt` counts the prompt's tokens, `read` those that the model has read, `made` the new tokens, `most` how many
    there may be. `said` is the text so far that will not change; it only grows. The adapter keeps these true as it
    steps.
    """

    def __init__(self, entry: Entry, prompt: int, most: int) -> None:
        self.entry = entry
        self.prompt = prompt
        self.most = most
        self.read = 0
        self.made = 0
        self.said = ""

    @property
    def unread(self) -> int:
        """Tokens of the prompt that the model has not read yet."""
        return self.prompt - self.read


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence does in a step: reads `read` more tokens of its prompt, or makes one new token if that is 0."""

    sequence: TokenSequence
    read: int = 0


class StepAdapter(Adapter):
    """A family that works step by step, so that others have the device between two steps.

    Sequences join and leave between steps; none waits for another's end. Never called from two threads at once.
    """

    @abstractmethod
    def join(self, entry: Entry) -> TokenSequence | EngineError:
        """The item as a sequence of which nothing is read yet; or why it cannot be one. Takes no device memory."""

    @abstractmethod
    def step(self, parts: Sequence[Part]) -> Sequence[Outcome | None]:
        """One pass for these sequences: for each its outcome if it has ended with this step, otherwise None.

        The last token of a prompt that is read gives the first new one. Raises like `run`.
        """

    @abstractmethod
    def leave(self, sequence: TokenSequence) -> None:
        """The sequence has ended, was cancelled or failed: give back its cache. It may not have had a step."""

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """All entries from beginning to end, side by side. The engine steps by itself; this is for tests and tools."""
        found: dict[int, Outcome] = {}
        joined: dict[int, TokenSequence] = {}
        for place, entry in enumerate(batch.entries):
            sequence = self.join(entry)
            if isinstance(sequence, TokenSequence):
                joined[place] = sequence
            else:
                found[place] = sequence
        try:
            while joined:
                places = list(joined)
                parts = [Part(joined[place], joined[place].unread) for place in places]
                for place, outcome in zip(places, self.step(parts), strict=True):
                    if outcome is not None:
                        self.leave(joined.pop(place))
                        found[place] = outcome
        finally:
            for sequence in joined.values():
                self.leave(sequence)
        return [found[place] for place in range(len(batch.entries))]
