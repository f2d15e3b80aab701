"""No model at all, step by step: words made from a hash of the prompt. For tests, benchmarks and simulations.

It is as heavy, slow and faulty as its load options declare. The same prompt gives the same words everywhere, whatever
is generated beside it and however the prompt is read. Its tokens are words.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from catalog.schema import Spec
from engine.adapters.base import LoadOptions, Part, StepAdapter, TokenSequence
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, OutOfMemory, TextTooLong
from engine.faults import WITHOUT_VECTORS, FaultRule, Faults, only, short_by_one
from engine.types import Entry, Footprint, Outcome, Output


class FakeGeneratorOptions(LoadOptions):
    """What the model pretends to be.

    `bytes` is for its weights, `activation_bytes` for a token of a step, `cache_bytes` for each token of a sequence. A
    step takes `read_seconds` for each token of a prompt that it reads, and `step_seconds` if it makes any. A sequence
    gets `new_tokens` unless its options say otherwise by `max_tokens`; with `early_end` it may end sooner, by its hash.
    A step of more than `most_tokens` runs out of memory. A fault's `over_items` counts the sequences of a step.
    """

    bytes: Annotated[int, Field(ge=0)] = 0
    activation_bytes: Annotated[int, Field(ge=0)] = 0
    cache_bytes: Annotated[int, Field(ge=0)] = 0
    load_seconds: Annotated[float, Field(ge=0)] = 0.0
    read_seconds: Annotated[float, Field(ge=0)] = 0.0
    step_seconds: Annotated[float, Field(ge=0)] = 0.0
    new_tokens: Annotated[int, Field(ge=1)] = 16
    early_end: bool = False
    most_tokens: Annotated[int, Field(ge=1)] | None = None
    faults: Annotated[tuple[FaultRule, ...], AfterValidator(only(WITHOUT_VECTORS))] = ()


class _Words(TokenSequence):
    """A sequence with the words made so far, and whether it has a cache."""

    def __init__(self, entry: Entry, text: str, prompt: int, most: int, length: int) -> None:
        super().__init__(entry, prompt, most)
        self.text = text
        self.length = length
        self.words: list[str] = []
        self.cached = False


class FakeGeneratorAdapter(StepAdapter):
    """The weightless generator. `caches` counts the sequences that hold one, `calls` the steps until now."""

    options = FakeGeneratorOptions

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        self._options = FakeGeneratorOptions.model_validate(options.model_dump())
        self._interrupted = threading.Event()
        self._faults = Faults(self._options.faults, self._interrupted)
        self._loaded = False
        self.caches = 0
        self.calls = 0

    def footprint(self) -> Footprint:
        """As declared."""
        given = self._options
        return Footprint(given.bytes, given.activation_bytes, given.cache_bytes)

    def held(self) -> int | None:
        """As declared."""
        return self._options.bytes if self._loaded else 0

    def load(self) -> None:
        """Take as long as declared."""
        if self._options.load_seconds and self._interrupted.wait(self._options.load_seconds):
            raise LoadFailed(f"The load of {self.spec.id} was interrupted.", LoadReason.UNKNOWN)
        self._loaded = True

    def unload(self) -> None:
        """Nothing is held but what sequences have, and none may be left."""
        self._loaded = False

    def interrupt(self) -> None:
        """End every wait, now and from now on."""
        self._interrupted.set()

    def join(self, entry: Entry) -> TokenSequence | EngineError:
        """Count the words of the prompt, and find out from its hash where the answer ends."""
        text = entry.item.payload.get("text")
        if not isinstance(text, str) or not text.split():
            return ItemRejected("The item has no prompt.")
        prompt = len(text.split())
        asked = getattr(entry.work.options, "max_tokens", None)
        most = asked if isinstance(asked, int) else self._options.new_tokens
        if prompt + most > self.spec.max_length:
            limit = self.spec.max_length
            return TextTooLong(f"The prompt has {prompt} tokens and may get {most}; the model keeps {limit} in all.")
        length = 1 + _hash(text, -1) % most if self._options.early_end else most
        return _Words(entry, text, prompt, most, length)

    def step(self, parts: Sequence[Part]) -> Sequence[Outcome | None]:
        """Read and make as the parts say, after the declared time and faults."""
        self.calls += 1
        texts = [part.sequence.text for part in parts if isinstance(part.sequence, _Words)]
        rules = self._faults.due(self.calls, texts)
        self._compute(parts)
        self._faults.meet(rules, texts)
        tokens = sum(max(part.read, 1) for part in parts)
        if self._options.most_tokens is not None and tokens > self._options.most_tokens:
            raise OutOfMemory
        outcomes = [self._advance(part) for part in parts]
        if short_by_one(rules):
            outcomes.pop()
        return outcomes

    def leave(self, sequence: TokenSequence) -> None:
        """Give back its cache, if it has got one."""
        if isinstance(sequence, _Words) and sequence.cached:
            sequence.cached = False
            self.caches -= 1

    def _advance(self, part: Part) -> Outcome | None:
        sequence = part.sequence
        if not isinstance(sequence, _Words):
            raise TypeError("not a sequence of this family")
        if not sequence.cached:
            sequence.cached = True
            self.caches += 1
        if part.read > sequence.unread or (not part.read and sequence.unread):
            raise ValueError("a step that reads what is not there, or makes before all is read")
        sequence.read += part.read
        if sequence.unread:
            return None
        if sequence.made < sequence.length:
            sequence.words.append(f"{_hash(sequence.text, sequence.made):04x}")
            sequence.made += 1
            sequence.said = " ".join(sequence.words)
        if sequence.made < sequence.length:
            return None
        finish = "length" if sequence.made == sequence.most else "stop"
        fields = {"text": sequence.said, "finish_reason": finish}
        usage = {"prompt_tokens": sequence.prompt, "completion_tokens": sequence.made}
        return Output(fields, tokens=sequence.prompt + sequence.made, usage=usage)

    def _compute(self, parts: Sequence[Part]) -> None:
        seconds = self._options.read_seconds * sum(part.read for part in parts)
        if any(not part.read for part in parts):
            seconds += self._options.step_seconds
        if seconds and self._interrupted.wait(seconds):
            raise RuntimeError("interrupted")


def _hash(text: str, index: int) -> int:
    digest = blake2b(f"{index} {text}".encode("utf-8", "surrogatepass"), digest_size=2).digest()
    return int.from_bytes(digest, "big")
