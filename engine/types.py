"""What crosses the engine's border. Frozen, plain, free of heavy imports.

Times are seconds on the clock that was passed in (monotonic in production, virtual in tests). Costs are predicted
device-milliseconds. Lengths are in the model's own unit (tokens for texts), special tokens included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from catalog.terms import Lane, Verb
from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Item:
    """One input of a job. `length` is a prediction; the adapter's own count goes into the output."""

    index: int
    payload: Mapping[str, Any]
    length: int
    cost_ms: float


@dataclass(frozen=True, slots=True)
class Work:
    """One job as the engine sees it: items for one model under one set of options.

    `deadline` is a time on the engine's clock after which nobody wants the answer. `alone` runs its items in batches of
    their own with nothing beside them on the device: the quarantine of a job that may have killed a worker.
    """

    id: str
    model: str
    verb: Verb
    items: tuple[Item, ...]
    options: Any
    lane: Lane
    priority: int
    arrived: float
    deadline: float | None = None
    caller: str = ""
    alone: bool = False

    @property
    def cost_ms(self) -> float:
        """Predicted device-milliseconds of all items."""
        return sum(item.cost_ms for item in self.items)


@dataclass(frozen=True, slots=True)
class Output:
    """What a model gave for one item. `fields` is a result's content by name; values are arrays or JSON-able.

    `tokens` counts all that was read and made. `usage` counts besides what the family counts: `prompt_tokens`,
    `completion_tokens`, `pages`, `images`, `audio_ms`; a job's usage is their sum.
    """

    fields: Mapping[str, Any]
    tokens: int = 0
    truncated: bool = False
    usage: Mapping[str, int] = field(default_factory=dict)


Outcome = Output | EngineError


@dataclass(frozen=True, slots=True)
class Entry:
    """One item in a batch, with the work it belongs to."""

    work: Work
    item: Item


@dataclass(frozen=True, slots=True)
class Batch:
    """The items of one forward pass: one model, one verb, one group of options that may mix.

    A `step` takes the sequences in it one token further, or reads more of their prompts. `shares` says what part of the
    pass each entry is, by predicted cost; empty stands for equal parts. `padded` tells, once it runs, whether the model
    fills every entry up to the longest.
    """

    id: int
    model: str
    verb: Verb
    entries: tuple[Entry, ...]
    alone: bool = False
    step: bool = False
    shares: tuple[float, ...] = ()
    padded: bool = True

    @property
    def parts(self) -> tuple[float, ...]:
        """What part of the pass each entry is."""
        return self.shares or (1.0 / len(self.entries),) * len(self.entries)

    @property
    def lane(self) -> Lane:
        """The interactive lane if any work in it is of that lane; only a step of several sequences has both."""
        bulk = all(entry.work.lane is Lane.BULK for entry in self.entries)
        return Lane.BULK if bulk else Lane.INTERACTIVE

    @property
    def padded_length(self) -> int:
        """The length every entry is padded to."""
        return max((entry.item.length for entry in self.entries), default=0)

    @property
    def computed(self) -> int:
        """The tokens that the model computes, padding included. Of no meaning for a step."""
        if self.padded:
            return len(self.entries) * self.padded_length
        return sum(entry.item.length for entry in self.entries)

    @property
    def cost_ms(self) -> float:
        """Predicted device-milliseconds, as the sum of the entries' own costs."""
        return sum(entry.item.cost_ms for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Spent:
    """Where the seconds of a work went inside the engine: they do not overlap and add up to its stay."""

    load: float = 0.0
    wait: float = 0.0
    device: float = 0.0


@dataclass(frozen=True, slots=True)
class Finished:
    """A work whose every item has an outcome, in the order of `work.items`."""

    work: Work
    outcomes: tuple[Outcome, ...]
    spent: Spent
    device_ms: float
    finished: float


@dataclass(frozen=True, slots=True)
class Piece:
    """More of an item's text, before its end: `text` begins at character `start` of it."""

    work: str
    index: int
    start: int
    text: str


class Listener(Protocol):
    """Told of what happens on the device. Called from engine threads: return at once, never raise."""

    def batch_started(self, batch: Batch, limit_s: float) -> None:
        """The batch is about to run; if it has not ended in `limit_s` seconds the process should be killed."""

    def batch_ended(self, batch: Batch, ended: Sequence[Entry]) -> None:
        """The batch has ended, well or badly. Works it completed follow in `finished`.

        `ended` are its entries that have come to an outcome. After a step others go on in the next one.
        """

    def said(self, pieces: Sequence[Piece]) -> None:
        """A step has made more of these texts, of works whose options ask for it (`stream`)."""

    def load_started(self, model: str, limit_s: float) -> None:
        """A load has begun, under the same rule for `limit_s`."""

    def load_ended(self, model: str) -> None:
        """A load has ended, well or badly."""

    def finished(self, done: Sequence[Finished]) -> None:
        """These works are complete. They come in one call per batch, so that they commit together."""

    def residents(self, models: Mapping[str, float]) -> None:
        """The models on the device have changed: each that is there, with the seconds that its last load took."""

    def device_lost(self, error: EngineError) -> None:
        """The device cannot compute any more; the process should hand back its work and exit."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that a model takes: its weights, and the activations of one padded token in a batch.

    `cache_per_token` is what a model that generates keeps of each token of a sequence until the sequence ends.
    """

    weights: int
    per_token: int = 0
    cache_per_token: int = 0


@dataclass(slots=True)
class BatchStats:
    """Running totals since the process started."""

    batches: int = 0
    items: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    device_s: float = 0.0
