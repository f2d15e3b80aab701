"""No model at all: vectors and scores made from hashes, capitalised words as entities. For tests and first steps.

It is as heavy, slow and faulty as its load options declare, and otherwise costs nothing. The same item gives the same
answer everywhere. Its tokens are words, and two for the special ones a real model would add. Of files it reads nothing
but their bytes: they are hashed for a vector or a score, and an extraction tells their size and hash.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from catalog.options import EncodeOptions
from catalog.schema import CostCoefficients, Spec
from catalog.terms import Verb
from engine.adapters.base import Adapter, LoadOptions
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite, TextTooLong
from engine.faults import AT_LOAD, AT_RESTORE, Fault, FaultRule, Faults, short_by_one
from engine.findings import entity, score_of
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
        """An answer for each item, after the declared time and faults."""
        texts = [text if isinstance(text := entry.item.payload.get("text"), str) else "" for entry in batch.entries]
        with self._lock:
            self._runs += 1
            rules = self._faults.due(self._runs, texts)
        self._compute(batch)
        self._faults.meet(rules, texts)
        read = [self._read(entry) for entry in batch.entries]
        outcomes = self._answers(batch.verb, read, [rule for rule in rules if rule.kind is Fault.NAN])
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

    def _answers(self, verb: Verb, read: Sequence[_Read | EngineError], spoilt: Sequence[FaultRule]) -> list[Outcome]:
        readable = [one for one in read if isinstance(one, _Read)]
        nan = [any(rule.when_text is None or rule.when_text in one.text for rule in spoilt) for one in readable]
        found: list[Outcome]
        match verb:
            case Verb.SCORE:
                found = [NotFinite() if bad else one.told(_score(one)) for one, bad in zip(readable, nan, strict=True)]
            case Verb.EXTRACT:
                found = [one.told(_found(one)) for one in readable]
            case _:
                found = self._encoded(readable, nan)
        answers = iter(found)
        return [next(answers) if isinstance(one, _Read) else one for one in read]

    def _encoded(self, read: Sequence[_Read], nan: Sequence[bool]) -> list[Outcome]:
        matrix = self._vectors([one.prefix + one.hashed for one in read])
        matrix[list(nan)] = np.nan
        options = [one.options if isinstance(one.options, EncodeOptions) else _PLAIN for one in read]
        vectors = finish_vectors(matrix, options)
        return [
            one.told({"dense": vector}) if isinstance(vector, dict) else vector
            for one, vector in zip(read, vectors, strict=True)
        ]

    def _read(self, entry: Entry) -> _Read | EngineError:
        payload, options = entry.item.payload, entry.work.options
        text = payload.get("text", "")
        files = _files(payload)
        query = payload.get("query", {})
        if not isinstance(text, str) or not (files or "text" in payload):
            return ItemRejected("The item has no text.")
        words = f"{query.get('text', '')} {text}".split()
        tokens = len(words) + _SPECIAL_TOKENS
        # What is extracted from a long text is found in all of it.
        truncated = tokens > self.spec.max_length and entry.work.verb is not Verb.EXTRACT
        if truncated and not getattr(options, "truncate", True):
            most = self.spec.max_length
            return TextTooLong(
                f"The text has {tokens} tokens, the model reads {most}; shorten it or send 'truncate': true."
            )
        if truncated:
            tokens = self.spec.max_length
            text = " ".join(text.split()[: max(tokens - _SPECIAL_TOKENS, 0)])
        return _Read(text, files, _text_and_files(query), self._prefix(options), tokens, truncated, options)

    def _prefix(self, options: object) -> str:
        if isinstance(options, EncodeOptions) and options.prompt is not None:
            return self._prompts.get(options.prompt, "")
        instruction = getattr(options, "instruction", None)
        return f"{instruction} " if instruction is not None else ""

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Numbers in [-1, 1) by a counter-based generator (splitmix64) that each text's hash seeds."""
        digests = b"".join([blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest() for text in texts])
        mixed = np.frombuffer(digests, dtype="<u8")[:, None] + self._steps
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        whole = (mixed >> np.uint64(40)).astype(np.float32)
        return np.asarray(whole / np.float32(2**23) - np.float32(1), dtype=np.float32)


class _Read(NamedTuple):
    """One readable item: its text, the hashes of its files, what it is scored against, and what its output says."""

    text: str
    files: Mapping[str, list[dict[str, Any]]]
    query: str
    prefix: str
    tokens: int
    truncated: bool
    options: object

    @property
    def hashed(self) -> str:
        """What stands for the item in a hash."""
        return _joined(self.text, self.files)

    def told(self, fields: Mapping[str, Any]) -> Output:
        """The item's output."""
        images = len(self.files.get("images", ()))
        return Output(fields, self.tokens, self.truncated, {"images": images} if images else {})


def _files(payload: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Size and hash of each file of an item, by what kind it is."""
    sent = {"images": payload.get("images", [])}
    sent |= {name: [payload[name]] for name in ("audio", "document") if name in payload}
    return {
        name: [
            {"bytes": len(one["data"]), "blake2b": blake2b(one["data"], digest_size=16).hexdigest()} for one in files
        ]
        for name, files in sent.items()
        if files
    }


def _text_and_files(payload: Mapping[str, Any]) -> str:
    return _joined(str(payload.get("text", "")), _files(payload))


def _joined(text: str, files: Mapping[str, list[dict[str, Any]]]) -> str:
    return " ".join([text, *(one["blake2b"] for found in files.values() for one in found)]) if files else text


def _score(one: _Read) -> dict[str, float]:
    """A probability that is the same for the same pair, and the logit it comes from."""
    share = (_hash(f"{one.prefix}{one.query}\n{one.hashed}") + 0.5) / 2**32
    return {"score": score_of(share), "raw_score": score_of(math.log(share / (1 - share)))}


def _found(one: _Read) -> dict[str, Any]:
    """Capitalised words, each with one of the labels that were asked for, and what files came with the text."""
    labels = getattr(one.options, "labels", None) or ("name",)
    least = getattr(one.options, "threshold", None) or 0.0
    entities = [
        entity(one.text, labels[_hash(word[0]) % len(labels)], score, word.start(), word.end())
        for word in _WORD.finditer(one.text)
        if word[0][0].isupper() and (score := 0.5 + _hash(word[0]) / 2**33) >= least
    ]
    return {"entities": entities} | ({"data": dict(one.files)} if one.files else {})


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest())


_WORD = re.compile(r"[^\W\d_]\w*")
_PLAIN = EncodeOptions()
