"""No model at all, step by step: words made from a hash of the prompt. For tests, benchmarks and simulations.

It is as heavy, slow and faulty as its load options declare. The same prompt gives the same words everywhere, whatever
is generated beside it and however the prompt is read; with a temperature they follow from the seed and the item's place
in its job, too. Its tokens are words. Of a conversation the prompt is the texts, one after the other.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

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
    With `echo` it says its prompt's last text again, and ends with it, whatever stands there between the words. A step
    of more than `most_tokens` runs out of memory. A fault's `over_items` counts the sequences of a step.
    """

    bytes: Annotated[int, Field(ge=0)] = 0
    activation_bytes: Annotated[int, Field(ge=0)] = 0
    cache_bytes: Annotated[int, Field(ge=0)] = 0
    load_seconds: Annotated[float, Field(ge=0)] = 0.0
    read_seconds: Annotated[float, Field(ge=0)] = 0.0
    step_seconds: Annotated[float, Field(ge=0)] = 0.0
    new_tokens: Annotated[int, Field(ge=1)] = 16
    early_end: bool = False
    echo: bool = False
    most_tokens: Annotated[int, Field(ge=1)] | None = None
    faults: Annotated[tuple[FaultRule, ...], AfterValidator(only(WITHOUT_VECTORS))] = ()


class _Words(TokenSequence):
    """A sequence, what its words follow from or else the words themselves, and whether it has a cache."""

    def __init__(self, entry: Entry, text: str, most: int, length: int, words: Sequence[str] | None) -> None:
        super().__init__(entry, len(text.split()), most)
        self.text = text
        self.length = length
        self.words = words
        self.source = f"{_draw(entry)}{text}"
        self.cached = False

    def next_word(self) -> str:
        """The next one, with the blank that parts it from the last."""
        if self.words is not None:
            return self.words[self.made]
        return f"{' ' if self.made else ''}{_hash(self.source, self.made):04x}"


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
        texts = _texts(entry.item.payload)
        text = "\n".join(texts)
        if not text.split():
            return ItemRejected("The item has no prompt.")
        prompt = len(text.split())
        asked = getattr(entry.work.options, "max_tokens", None)
        most = asked if isinstance(asked, int) else self._options.new_tokens
        if prompt + most > self.spec.max_length:
            limit = self.spec.max_length
            return TextTooLong(f"The prompt has {prompt} tokens and may get {most}; the model keeps {limit} in all.")
        words = _WORD.findall(texts[-1]) if self._options.echo else None
        if words is not None:
            length = max(1, min(len(words), most))
        else:
            length = 1 + _hash(text, -1) % most if self._options.early_end else most
        return _Words(entry, text, most, length, words or None)

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
            sequence.said += sequence.next_word()
            sequence.made += 1
        if sequence.made < sequence.length:
            return None
        whole = sequence.words is not None and sequence.made == len(sequence.words)
        finish = "stop" if whole or sequence.made < sequence.most else "length"
        fields = {"text": sequence.said, "finish_reason": finish}
        usage = {"prompt_tokens": sequence.prompt, "completion_tokens": sequence.made}
        return Output(fields, tokens=sequence.prompt + sequence.made, usage=usage)

    def _compute(self, parts: Sequence[Part]) -> None:
        seconds = self._options.read_seconds * sum(part.read for part in parts)
        if any(not part.read for part in parts):
            seconds += self._options.step_seconds
        if seconds and self._interrupted.wait(seconds):
            raise RuntimeError("interrupted")


_WORD = re.compile(r"\S+\s*|\s+")


def _texts(payload: Mapping[str, Any]) -> list[str]:
    """What there is to read of an item, in order."""
    found = [payload.get("text")]
    for message in payload.get("messages") or ():
        content = message["content"]
        found += [content] if isinstance(content, str) else [part.get("text") for part in content]
    return [text for text in found if isinstance(text, str)]


def _draw(entry: Entry) -> str:
    """What tells this sequence from others of the same prompt: nothing, as long as there is no temperature."""
    options, place = entry.work.options, entry.item.index
    if not getattr(options, "temperature", 0):
        return ""
    seed = options.seed_at(place)
    return "" if seed is None and place == 0 else f"{place if seed is None else seed} "


def _hash(text: str, index: int) -> int:
    digest = blake2b(f"{index} {text}".encode("utf-8", "surrogatepass"), digest_size=2).digest()
    return int.from_bytes(digest, "big")
