"""Counting tokens as a model does, without torch: on the `tokenizers` library and the model's own tokenizer.json.

User text is text. A literal such as `[SEP]`, `</s>` or `<|endoftext|>` inside it never becomes the control token of
that name. The library's switch for this is not enough: with a Unigram model, or a BPE one that takes whole words from
its vocabulary, the literal still comes out as the control token, and so does one that normalisation makes (NFKC turns
full-width brackets into plain ones). So what comes out is looked at, and a control token that is not of the template
is spelled in single characters.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Encoding, Tokenizer

from catalog import weights
from catalog.errors import WeightsUnavailable
from catalog.schema import Source, Spec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text as a model reads it: `ids` whole, with a template of `first` and `last` control tokens around it."""

    ids: list[int]
    type_ids: list[int]
    first: int
    last: int

    @property
    def body(self) -> list[int]:
        """The text's own tokens."""
        return self.ids[self.first : len(self.ids) - self.last]

    def part(self, start: int, stop: int) -> Tokens:
        """The text's own tokens from `start` up to `stop`, in the same template."""
        end = len(self.ids) - self.last
        keep = slice(self.first + start, min(self.first + stop, end))
        return Tokens(
            self.ids[: self.first] + self.ids[keep] + self.ids[end:],
            self.type_ids[: self.first] + self.type_ids[keep] + self.type_ids[end:],
            self.first,
            self.last,
        )

    def cut(self, longest: int, *, keep_end: bool = False) -> Tokens:
        """At most `longest` tokens: the template and the beginning of the text, or its end if `keep_end`."""
        if len(self.ids) <= longest:
            return self
        room = max(0, longest - self.first - self.last)
        stop = len(self.ids) - self.last
        start = stop - room if keep_end else self.first
        return Tokens(
            self.ids[: self.first] + self.ids[start : start + room] + self.ids[stop:],
            self.type_ids[: self.first] + self.type_ids[start : start + room] + self.type_ids[stop:],
            self.first,
            self.last,
        )


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """The control tokens before, between and after two texts, each with its type, and the type of each text's own."""

    first: tuple[tuple[int, int], ...]
    between: tuple[tuple[int, int], ...]
    last: tuple[tuple[int, int], ...]
    types: tuple[int, int]

    @property
    def size(self) -> int:
        """How many control tokens a pair has."""
        return len(self.first) + len(self.between) + len(self.last)

    def around(self, one: Sequence[int], other: Sequence[int]) -> Tokens:
        """Two texts' own tokens as one input of the model."""
        pieces = [
            *self.first,
            *((index, self.types[0]) for index in one),
            *self.between,
            *((index, self.types[1]) for index in other),
            *self.last,
        ]
        ids, types = [index for index, _ in pieces], [kind for _, kind in pieces]
        return Tokens(ids, types, len(self.first), len(self.last))


class PlainTokenizer:
    """A private copy of a tokenizer that takes text as text and never cuts or pads. Safe in any number of threads.

    Nothing in it changes after construction: truncation and padding are state of the library's object, and threads
    that set them on a shared one get each other's, or a borrow error. Raises ValueError for a tokenizer whose template
    cannot be told from its text.
    """

    def __init__(self, serialized: str) -> None:
        # One thread a call, and the GIL is free meanwhile; only the *_batch calls free it. A pool of threads of its own
        # would compete with the lanes of a worker and with the other calls of an API.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        tokenizer = Tokenizer.from_str(serialized)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._first, self._last = _template(tokenizer)
        unknown = _unknown(tokenizer, json.loads(serialized)["model"])
        added = tokenizer.get_added_tokens_decoder()
        self._spelled = {
            index: _spell(tokenizer, token.content, unknown)
            for index, token in added.items()
            if token.special and index != unknown
        }

    @classmethod
    def from_file(cls, file: Path) -> PlainTokenizer:
        """The tokenizer of a `tokenizer.json`. Raises ValueError if it is none."""
        try:
            return cls(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{file} cannot be read: {error.strerror or error}") from error
        except Exception as error:
            # The library raises bare Exception for a file it cannot read.
            raise ValueError(f"{file} is not a tokenizer: {error}") from error

    @property
    def template(self) -> int:
        """How many control tokens go around a text."""
        return self._first + self._last

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text as the model reads it, whole. Raises TypeError for a text with half a surrogate pair."""
        return [self._tokens(encoding) for encoding in self._tokenizer.encode_batch_fast(texts)]

    def count(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, control tokens included. Raises TypeError as `encode` does."""
        return [self._count(encoding) for encoding in self._tokenizer.encode_batch_fast(texts)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[Tokens, list[tuple[int, int]]]]:
        """Each text as `encode` gives it, and what code points each of its own tokens came from."""
        return [(self._tokens(encoding), self._offsets(encoding)) for encoding in self._tokenizer.encode_batch(texts)]

    def pair_template(self) -> PairTemplate:
        """What the model has around two texts that it reads together. Raises ValueError where that cannot be told."""
        encoding = self._tokenizer.encode("a", "a")
        owners = encoding.sequence_ids
        pieces = list(zip(encoding.ids, encoding.type_ids, strict=True))
        if 0 not in owners or 1 not in owners:
            raise ValueError("the tokenizer does not tell the texts of a pair apart")
        one, other = owners.index(0), owners.index(1)
        end, stop = len(owners) - owners[::-1].index(0), len(owners) - owners[::-1].index(1)
        if set(owners[one:end]) != {0} or set(owners[other:stop]) != {1}:
            raise ValueError("the tokenizer's template has control tokens inside the text")
        types = encoding.type_ids[one], encoding.type_ids[other]
        return PairTemplate(tuple(pieces[:one]), tuple(pieces[end:other]), tuple(pieces[stop:]), types)

    def token(self, index: int) -> str:
        """The vocabulary's own spelling of a token; empty if there is none of this id."""
        return self._tokenizer.id_to_token(index) or ""

    @property
    def marks_subwords(self) -> bool:
        """Whether tokens that go on with a word begin with a prefix that says so, such as `##`."""
        return bool(getattr(self._tokenizer.model, "continuing_subword_prefix", None))

    def _offsets(self, encoding: Encoding) -> list[tuple[int, int]]:
        stop = len(encoding.ids) - self._last
        own = zip(encoding.ids[self._first : stop], encoding.offsets[self._first : stop], strict=True)
        return [offsets for index, offsets in own for _ in self._spelled.get(index, (index,))]

    def _tokens(self, encoding: Encoding) -> Tokens:
        ids, type_ids = encoding.ids, encoding.type_ids
        stop = len(ids) - self._last
        body = ids[self._first : stop]
        if self._spelled.keys().isdisjoint(body):
            return Tokens(ids, type_ids, self._first, self._last)
        body = list(self._respelled(body))
        types = type_ids[: self._first] + type_ids[self._first : self._first + 1] * len(body) + type_ids[stop:]
        return Tokens(ids[: self._first] + body + ids[stop:], types, self._first, self._last)

    def _count(self, encoding: Encoding) -> int:
        ids = encoding.ids
        body = ids[self._first : len(ids) - self._last]
        if self._spelled.keys().isdisjoint(body):
            return len(ids)
        return len(list(self._respelled(body))) + self.template

    def _respelled(self, body: Iterable[int]) -> Iterable[int]:
        for index in body:
            yield from self._spelled.get(index, (index,))


def _template(tokenizer: Tokenizer) -> tuple[int, int]:
    """How many control tokens stand before and after a text."""
    mask = tokenizer.encode("a").special_tokens_mask
    first = mask.index(0) if 0 in mask else len(mask)
    last = mask[::-1].index(0) if 0 in mask else 0
    if 0 not in mask or 1 in mask[first : len(mask) - last]:
        raise ValueError("the tokenizer's template has control tokens inside the text")
    return first, last


def _unknown(tokenizer: Tokenizer, model: dict[str, object]) -> int | None:
    """The id of what the vocabulary does not have. It is a control token, and ordinary text brings it forth."""
    index, token = model.get("unk_id"), model.get("unk_token")
    if isinstance(index, int):
        return index
    return tokenizer.token_to_id(token) if isinstance(token, str) else None


def _spell(tokenizer: Tokenizer, literal: str, unknown: int | None) -> tuple[int, ...]:
    singles = (tokenizer.token_to_id(char) for char in literal)
    return tuple(index for index in (unknown if s is None else s for s in singles) if index is not None)


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of each text. Where `exact` is false they are estimates: good for a price, not for a refusal."""

    tokens: list[int]
    exact: bool


class TokenCounter:
    """Counts the tokens of texts for any model of the catalog. Thread-safe; one serves a process.

    The first count of a model reads its tokenizer, perhaps from the hub: call `prepare` ahead, off the event loop.
    Where a tokenizer cannot be had the counts are estimates, and it is looked for again after `retry_s`.
    """

    def __init__(
        self,
        find: Callable[[Spec], Path | None] = weights.tokenizer_file,
        *,
        retry_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._retry_s = retry_s
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: dict[Source, threading.Lock] = {}
        self._tokenizers: dict[Source, PlainTokenizer | None] = {}
        self._again: dict[Source, float] = {}

    def count(self, spec: Spec, texts: Sequence[str]) -> Counts:
        """Tokens of each text, control tokens included, uncut. A model without weights counts by the estimate."""
        tokenizer = self._tokenizer(spec)
        if tokenizer is None:
            return Counts([estimate(text) for text in texts], exact=spec.source == Source())
        return Counts(tokenizer.count([_whole(text) for text in texts]), exact=True)

    def prepare(self, spec: Spec) -> bool:
        """Read the model's tokenizer now, so that later counts take microseconds. Whether counts will be exact."""
        return self._tokenizer(spec) is not None or spec.source == Source()

    def _tokenizer(self, spec: Spec) -> PlainTokenizer | None:
        source = spec.source
        known = self._tokenizers.get(source)
        if known is not None or source == Source() or self._clock() < self._again.get(source, float("-inf")):
            return known
        with self._lock:
            lock = self._locks.setdefault(source, threading.Lock())
        with lock:
            if self._tokenizers.get(source) is None and self._clock() >= self._again.get(source, float("-inf")):
                self._read(spec)
            return self._tokenizers.get(source)

    def _read(self, spec: Spec) -> None:
        try:
            file = self._find(spec)
            self._tokenizers[spec.source] = PlainTokenizer.from_file(file) if file else None
        except (WeightsUnavailable, ValueError) as error:
            log.warning("no tokenizer for %s, so its token counts are estimates: %s", spec.id, error)
        if self._tokenizers.get(spec.source) is None:
            self._again[spec.source] = self._clock() + self._retry_s


def estimate(text: str) -> int:
    """Tokens of a text by its characters: four to a token in ASCII, one to a token elsewhere, and two around it."""
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return -(-plain // 4) + (len(text) - plain) + 2


def _whole(text: str) -> str:
    """The text with each half of a surrogate pair replaced: such a text is refused elsewhere, but can be counted."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")
