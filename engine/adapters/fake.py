"""No model at all: vectors made from a hash of the text. For tests, benchmarks, simulations and first steps.

It is as heavy, slow and faulty as its load options declare, and otherwise costs nothing. The same text gives the same
vector everywhere. Its tokens are words, and two for the special ones a real model would add.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from catalog.options import EncodeOptions
from catalog.schema import CostCoefficients, Spec
from engine.adapters.base import Adapter, LoadOptions
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, TextTooLong
from engine.faults import AT_LOAD, AT_RESTORE, Fault, FaultRule, Faults, short_by_one
from engine.outputs import finish_vectors
from engine.types import Batch, Entry, Footprint, Outcome, Output

_SPECIAL_TOKENS = 2


class FakeOptions(LoadOptions):
    """What the model pretends to be.

    `bytes` is the estimate of its weights and `actual_bytes`, if given, what it turns out to take; with `allocate` that
    much memory is really taken. `activation_bytes` is for one padded token. With `parks` it can wait in host memory,
    and takes `park_seconds` to go there and `restore_seconds` to come back. `seconds_per_cost` makes a run take so long
    for each predicted millisecond of its padded batch (0.001 is true to the prediction), or for each padded token where
    the spec gives no cost. `dims` overrides the spec's.
    """

    bytes: Annotated[int, Field(ge=0)] = 0
    actual_bytes: Annotated[int, Field(ge=0)] | None = None
    activation_bytes: Annotated[int, Field(ge=0)] = 0
    allocate: bool = False
    load_seconds: Annotated[float, Field(ge=0)] = 0.0
    parks: bool = False
    park_seconds: Annotated[float, Field(ge=0)] = 0.0
    restore_seconds: Annotated[float, Field(ge=0)] = 0.0
    seconds_per_cost: Annotated[float, Field(ge=0)] = 0.0
    dims: Annotated[int, Field(ge=1)] | None = None
    faults: tuple[FaultRule, ...] = ()


class FakeAdapter(Adapter):
    """The weightless model. Waits end early on `interrupt`. Calls and faults are counted over all its loads."""

    options = FakeOptions
    reentrant = True

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        self._options = FakeOptions.model_validate(options.model_dump())
        facts = spec.tasks.encode
        self._prompts = facts.prompts if facts else {}
        self._dims = self._options.dims or (facts.dims if facts else 8)
        self._steps = np.arange(1, self._dims + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        self._lock = threading.Lock()
        self._interrupted = threading.Event()
        self._loads = 0
        self._restores = 0
        self._runs = 0
        self._faults = Faults(self._options.faults, self._interrupted)
        self._loaded = False
        self._memory: NDArray[np.uint8] | None = None

    def footprint(self) -> Footprint:
        """As declared."""
        return Footprint(self._options.bytes, self._options.activation_bytes)

    def held(self) -> int | None:
        """As declared, or as `actual_bytes` has it."""
        actual = self._options.actual_bytes
        return (self._options.bytes if actual is None else actual) if self._loaded else 0

    def load(self) -> None:
        """Take as long as declared, meet the faults of a load, take memory if asked to."""
        with self._lock:
            self._loads += 1
            rules = self._faults.due(self._loads, (), AT_LOAD)
        seconds = self._options.load_seconds
        seconds += sum(rule.seconds for rule in rules if rule.kind is Fault.SLOW_LOAD)
        if seconds and self._interrupted.wait(seconds):
            raise LoadFailed(f"The load of {self.spec.id} was interrupted.", LoadReason.UNKNOWN)
        for rule in rules:
            if rule.kind is Fault.FAIL_LOAD:
                raise LoadFailed(f"{self.spec.id} was told to fail to load: {rule.reason}.", rule.reason)
        self._loaded = True
        if self._options.allocate:
            self._memory = np.ones(self.held() or 0, dtype=np.uint8)

    def unload(self) -> None:
        """Give the memory back."""
        self._memory = None
        self._loaded = False

    @property
    def parks(self) -> bool:
        """As declared."""
        return self._options.parks

    def park(self) -> int | None:
        """Hold nothing on the device; None unless it was told that it can."""
        if not self._options.parks:
            return None
        self._interrupted.wait(self._options.park_seconds)
        size = self.held() or 0
        self._loaded = False
        return size

    def restore(self) -> None:
        """Come back after the declared time, or meet the fault."""
        with self._lock:
            self._restores += 1
            rules = self._faults.due(self._restores, (), AT_RESTORE)
        if self._options.restore_seconds and self._interrupted.wait(self._options.restore_seconds):
            raise LoadFailed(f"The return of {self.spec.id} was interrupted.", LoadReason.UNKNOWN)
        for rule in rules:
            raise LoadFailed(f"{self.spec.id} was told to fail to come back: {rule.reason}.", rule.reason)
        self._loaded = True

    def interrupt(self) -> None:
        """End every wait, now and from now on."""
        self._interrupted.set()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """A vector for each text, after the declared time and faults."""
        texts = [text if isinstance(text := entry.item.payload.get("text"), str) else "" for entry in batch.entries]
        with self._lock:
            self._runs += 1
            rules = self._faults.due(self._runs, texts)
        self._compute(batch)
        self._faults.meet(rules, texts)
        outcomes = self._encode(batch, rules)
        if short_by_one(rules):
            outcomes.pop()
        return outcomes

    def _compute(self, batch: Batch) -> None:
        if not self._options.seconds_per_cost:
            return
        cost = CostCoefficients(base=0.0, per_token=1.0) if self.spec.cost is None else self.spec.cost
        units = cost.batch(len(batch.entries), batch.padded_length)
        if self._interrupted.wait(units * self._options.seconds_per_cost):
            raise RuntimeError("interrupted")

    def _encode(self, batch: Batch, rules: Sequence[FaultRule]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        read: list[_Text] = []
        for place, entry in enumerate(batch.entries):
            text = self._read(place, entry)
            if isinstance(text, EngineError):
                outcomes.append(text)
            else:
                read.append(text)
                outcomes.append(_UNSET)
        matrix = self._vectors([text.hashed for text in read])
        for rule in rules:
            if rule.kind is Fault.NAN:
                matrix[[rule.when_text is None or rule.when_text in text.hashed for text in read]] = np.nan
        for text, vector in zip(read, finish_vectors(matrix, [text.options for text in read]), strict=True):
            if isinstance(vector, dict):
                outcomes[text.place] = Output({"dense": vector}, text.tokens, text.truncated)
            else:
                outcomes[text.place] = vector
        return outcomes

    def _read(self, place: int, entry: Entry) -> _Text | EngineError:
        text = entry.item.payload.get("text")
        if not isinstance(text, str):
            return ItemRejected("The item has no text.")
        given = entry.work.options
        options = given if isinstance(given, EncodeOptions) else _PLAIN
        words = text.split()
        tokens = len(words) + _SPECIAL_TOKENS
        truncated = tokens > self.spec.max_length
        if truncated and not options.truncate:
            most = self.spec.max_length
            return TextTooLong(f"The text has {tokens} tokens, the model reads {most}; shorten it or allow truncation.")
        if truncated:
            tokens = self.spec.max_length
            text = " ".join(words[: max(tokens - _SPECIAL_TOKENS, 0)])
        if options.prompt is not None:
            text = self._prompts.get(options.prompt, "") + text
        elif options.instruction is not None:
            text = f"{options.instruction} {text}"
        return _Text(place, text, tokens, truncated, options)

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Numbers in [-1, 1) by a counter-based generator (splitmix64) that each text's hash seeds."""
        digests = b"".join([blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts])
        mixed = np.frombuffer(digests, dtype="<u8")[:, None] + self._steps
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        whole = (mixed >> np.uint64(40)).astype(np.float32)
        return np.asarray(whole / np.float32(2**23) - np.float32(1), dtype=np.float32)


class _Text(NamedTuple):
    """One readable item: its place in the batch, what is hashed, and what its output says of it."""

    place: int
    hashed: str
    tokens: int
    truncated: bool
    options: EncodeOptions


_PLAIN = EncodeOptions()
_UNSET = Output({})
