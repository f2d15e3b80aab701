"""Two ways to have a decoder read and make tokens: all sequences in one packed row, or one at a time by the library.

The first is faster and takes a prompt in pieces. Whether a model's layers can be served so is tried at its load,
against the library's own answers; those of others, such as linear attention, keep the library's cache. Imports torch:
never import this at the top of an adapter's module.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from engine.attention import window
from engine.failures import out_of_memory
from engine.generation.attention import IMPLEMENTATION, Row, SequenceCache, Span, register, within

log = logging.getLogger(__name__)

_EXACT, _HALF = 1e-4, 5e-2
"""How far logits may differ between both ways, by the largest logit, in float32 and in half types."""
_WIDEST_TRIAL = 512
"""Tokens of a window up to which the trial has a sequence that is longer than it."""
_LENGTHS = (5, 23, 6, 12)


@dataclass(slots=True)
class Memory:
    """What one sequence keeps of its tokens: `length` of them, whose places in the text begin at `shift` more."""

    cache: SequenceCache
    past: Any = None
    length: int = 0
    shift: int = 0

    def back(self, length: int) -> None:
        """After a pass that failed: with so many tokens again. What the library keeps cannot go back, and is lost."""
        if self.past is None:
            self.length = self.cache.length = length
        else:
            self.past, self.length, self.shift = None, 0, 0


@dataclass(frozen=True, slots=True)
class Feed:
    """Tokens that one sequence reads next. `beside` is what else the model reads with them, such as an image's pixels.

    `wanted` tells whether the logits behind the last of them are.
    """

    memory: Memory
    ids: Sequence[int]
    wanted: bool = True
    beside: Mapping[str, Any] = field(default_factory=dict)


class Decoder(Protocol):
    """How a model's sequences are fed. `whole` tells that a prompt has to come in one piece."""

    whole: bool

    def feed(self, feeds: Sequence[Feed]) -> list[torch.Tensor | None]:
        """For each the logits (vocabulary) behind its last token, or None if they are not wanted."""


class PackedDecoder:
    """All sequences in one row, each with the keys and values of its own."""

    whole = False

    def __init__(self, model: Any, device: str) -> None:
        self._model = model
        self._device = device
        self.windows: set[int | None] = set()

    def feed(self, feeds: Sequence[Feed]) -> list[torch.Tensor | None]:
        """One forward pass for all, and one for each that has something beside its tokens."""
        found: dict[int, torch.Tensor] = {}
        packed = [place for place, feed in enumerate(feeds) if not feed.beside]
        if packed:
            found.update(zip(packed, self._pass([feeds[place] for place in packed]), strict=True))
        for place, feed in enumerate(feeds):
            if feed.beside:
                found[place] = self._pass([feed])[0]
        return [found[place] if feed.wanted else None for place, feed in enumerate(feeds)]

    def _pass(self, feeds: Sequence[Feed]) -> torch.Tensor:
        ids: list[int] = []
        places: list[int] = []
        spans: list[Span] = []
        ends: list[int] = []
        for feed in feeds:
            spans.append(Span(feed.memory.cache, len(ids), len(feed.ids)))
            begin = feed.memory.length + feed.memory.shift
            places += range(begin, begin + len(feed.ids))
            ids += feed.ids
            ends.append(len(ids) - 1)
        beside = dict(feeds[0].beside)
        if not beside:
            beside["position_ids"] = self._sent([places])
        row = Row(spans)
        with within(row):
            out = self._model(
                input_ids=self._sent([ids]),
                use_cache=False,
                logits_to_keep=self._sent(ends),
                **_on(beside, self._device),
            )
        for feed in feeds:
            feed.memory.length += len(feed.ids)
        if feeds[0].beside:
            feeds[0].memory.shift = taken_shift(self._model)
        self.windows |= row.windows
        logits: torch.Tensor = out.logits[0]
        return logits

    def _sent(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.long).to(self._device)


class LibraryDecoder:
    """One sequence after the other, each with the cache that the library makes for this model."""

    def __init__(self, model: Any, device: str, *, whole: bool = True) -> None:
        self._model = model
        self._device = device
        self.whole = whole

    def feed(self, feeds: Sequence[Feed]) -> list[torch.Tensor | None]:
        """One forward pass for each."""
        found = [self._one(feed) for feed in feeds]
        return [logits if feed.wanted else None for feed, logits in zip(feeds, found, strict=True)]

    def _one(self, feed: Feed) -> torch.Tensor:
        memory = feed.memory
        ids = torch.tensor([list(feed.ids)], dtype=torch.long).to(self._device)
        kwargs = dict(_on(feed.beside, self._device))
        if memory.past is not None:
            begin = memory.length + memory.shift
            kwargs |= memory.past
            kwargs["position_ids"] = torch.arange(begin, begin + len(feed.ids))[None].to(self._device)
        out = self._model(input_ids=ids, use_cache=True, logits_to_keep=1, **kwargs)
        names = ("past_key_values", "cache_params")
        memory.past = {name: kept for name in names if (kept := getattr(out, name, None)) is not None}
        if not memory.past:
            raise NotImplementedError("the model keeps nothing of what it has read")
        if memory.length == 0:
            memory.shift = taken_shift(self._model)
        memory.length += len(feed.ids)
        logits: torch.Tensor = out.logits[0, -1]
        return logits


class Shown(Protocol):
    """A prompt with an image."""

    @property
    def ids(self) -> Sequence[int]:
        """Its tokens."""

    @property
    def beside(self) -> Mapping[str, Any]:
        """What is read with them."""


def try_packed(
    model: Any, device: str, longest: int, words: Sequence[int], text: Any = None, shown: Shown | None = None
) -> PackedDecoder | None:
    """The packed way, if the model gives the same logits in it as by itself; otherwise None, and all as it was.

    `words` are ids of plain tokens; `text` is the part of the model that reads tokens where that is not all of it, and
    `shown` a prompt with an image then. Raises what torch raises when memory runs out.
    """
    inner = model if text is None else text
    before = inner.config._attn_implementation
    seen = window(inner)
    rows = _rows(words, longest, seen)
    packed = PackedDecoder(model, device)
    register()
    try:
        with torch.inference_mode():
            expected = [_alone(model, row, device) for row in rows]
            if shown is not None:
                expected.append(_alone(model, shown.ids, device, shown.beside))
            attend_by(inner, IMPLEMENTATION)
            found = _together(packed, rows)
            if shown is not None:
                found.append(_seen_first(packed, shown))
        why = _differs(expected, found, inner, packed.windows, seen)
    except Exception as error:
        if out_of_memory(error):
            raise
        why = f"does not run so: {error!r}"
    if why is None:
        return packed
    log.info("%s %s; its sequences are computed one by one", type(model).__name__, why)
    attend_by(inner, before)
    return None


def try_pieces(model: Any, device: str, words: Sequence[int]) -> LibraryDecoder:
    """The library's way: with prompts in pieces if the model's own cache goes on with them, which not every one does.

    Raises what torch raises when memory runs out.
    """
    row = _rows(words, max(_LENGTHS), None)[1]
    pieces = LibraryDecoder(model, device, whole=False)
    memory = Memory(SequenceCache(0))
    try:
        with torch.inference_mode():
            expected = _alone(model, row, device)[-1]
            pieces.feed([Feed(memory, row[:7], wanted=False), Feed(memory, row[7:18], wanted=False)])
            (found,) = pieces.feed([Feed(memory, row[18:])])
        if found is not None and _same(expected, found.float(), model):
            return pieces
        why = "gives other logits for a prompt in pieces"
    except Exception as error:
        if out_of_memory(error):
            raise
        why = f"reads no prompt in pieces: {error!r}"
    log.info("%s %s; its prompts are read whole", type(model).__name__, why)
    return LibraryDecoder(model, device)


def attend_by(inner: Any, implementation: str) -> None:
    """Have the layers of a model, or of the part of it that reads tokens, attend so. Nothing else of it changes."""
    inner.config._attn_implementation_internal = implementation
    for part in inner.modules():
        config = getattr(part, "config", None)
        if config is not None and type(config) is type(inner.config):
            config._attn_implementation_internal = implementation


def taken_shift(model: Any) -> int:
    """How far the places of a prompt's images move those of what follows, as the model noted in its last call."""
    for part in (model, getattr(model, "model", None)):
        deltas = getattr(part, "rope_deltas", None)
        if isinstance(deltas, torch.Tensor):
            part.rope_deltas = None  # type: ignore[union-attr]  # the part that has it
            return int(deltas.flatten()[0])
    return 0


def rescales(config: Any) -> bool:
    """Whether the model changes its rotary frequencies by the longest text of a pass: then texts share none."""
    parts = (config, getattr(config, "text_config", None))
    return any(
        kind in str(getattr(part, "rope_parameters", None)) for part in parts for kind in ("dynamic", "longrope")
    )


def _rows(words: Sequence[int], longest: int, seen: int | None) -> list[list[int]]:
    lengths = [*_LENGTHS, *([seen + 9] if seen is not None and seen <= _WIDEST_TRIAL else [])]
    drawn = torch.Generator().manual_seed(7)
    rows = []
    for length in lengths:
        picks = torch.randint(len(words), (min(length, longest),), generator=drawn).tolist()
        rows.append([words[pick] for pick in picks])
    return [row for row in rows if len(row) > 3]


def _alone(model: Any, row: Sequence[int], device: str, beside: Mapping[str, Any] | None = None) -> torch.Tensor:
    """The library's logits behind the last three tokens."""
    out = model(input_ids=torch.tensor([list(row)]).to(device), use_cache=False, **_on(beside or {}, device))
    taken_shift(model)
    logits: torch.Tensor = out.logits[0, -3:]
    return logits.float()


def _seen_first(packed: PackedDecoder, shown: Shown) -> torch.Tensor:
    """The same of a prompt with an image, whose last two tokens come one by one."""
    end = len(shown.ids) - 2
    beside = {
        name: value[..., :end] if name.endswith("token_type_ids") else value for name, value in shown.beside.items()
    }
    memory = Memory(SequenceCache(len(shown.ids)))
    found = packed.feed([Feed(memory, shown.ids[:end], beside=beside)])
    found += packed.feed([Feed(memory, shown.ids[end : end + 1])])
    found += packed.feed([Feed(memory, shown.ids[end + 1 :])])
    return torch.stack([logits.float() for logits in found if logits is not None])


def _together(packed: PackedDecoder, rows: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """The same, with prompts read in two pieces, while others make tokens."""
    memories = [Memory(SequenceCache(len(row))) for row in rows]
    halves = [(len(row) - 2) // 2 for row in rows]
    packed.feed(
        [Feed(m, row[:half], wanted=False) for m, row, half in zip(memories, rows, halves, strict=True) if half]
    )
    found: list[list[torch.Tensor]] = [[] for _ in rows]
    # The first is a token ahead of the others, so that passes mix what is read and what is made.
    for turn in range(4):
        feeds, places = [], []
        for place, (memory, row) in enumerate(zip(memories, rows, strict=True)):
            own = turn if place == 0 else turn - 1
            if not 0 <= own < 3:
                continue
            begin, end = (memory.length, len(row) - 2) if own == 0 else (memory.length, memory.length + 1)
            feeds.append(Feed(memory, row[begin:end]))
            places.append(place)
        for place, logits in zip(places, packed.feed(feeds), strict=True):
            if logits is not None:
                found[place].append(logits.float())
    return [torch.stack(one) for one in found]


def _differs(
    expected: Sequence[torch.Tensor],
    found: Sequence[torch.Tensor],
    inner: Any,
    windows: set[int | None],
    seen: int | None,
) -> str | None:
    """Why what came out together is not what each has alone; None where it is."""
    if not all(_same(one, other, inner) for one, other in zip(expected, found, strict=True)):
        return "gives other logits so"
    if _same(expected[0][-1], expected[1][-1], inner):
        return "gives all texts the same logits, which proves nothing"
    if seen is not None and seen > _WIDEST_TRIAL and seen not in windows:
        return "keeps a window that its attention is not told of"
    if rescales(inner.config):
        return "has positions that depend on what runs beside"
    return None


def _same(one: torch.Tensor, other: torch.Tensor, model: Any) -> bool:
    """Whether two sets of logits are equal but for rounding."""
    bound = _EXACT if next(model.parameters()).itemsize == 4 else _HALF
    return float((one - other).abs().max()) <= bound * float(one.abs().max())


def _on(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in values.items()}
