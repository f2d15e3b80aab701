"""Entities of a fixed set of labels: models that tag every token, such as those for names or for personal data.

Offsets are code points of the text as it was sent, and the tokens' own: nothing is looked up by its spelling. A text
longer than the model reads goes in as windows that overlap (see `engine.windows`), and is never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from catalog.options import ExtractOptions
from catalog.schema import Spec
from catalog.tokenizer import Tokens
from engine.adapters.base import LoadOptions
from engine.errors import ItemRejected, NotFinite, WrongCount
from engine.findings import entity
from engine.readings import text_of
from engine.tagging import OUTSIDE, Aggregation, Piece, is_bioes, kind_of, merged_neighbours, spans, trimmed
from engine.text_head import Logits, TextHeadAdapter, softmax
from engine.torch_adapter import TorchOptions
from engine.types import Batch, Outcome, Output
from engine.windows import Window, cut, merge


class TokenClassifierOptions(TorchOptions):
    """`aggregation` is how tokens become entities, by the names that transformers has for it.

    `simple` joins neighbours of one label; the others first give each word one tag, by its first token, the mean of
    its tokens, or the surest of them. `overlap` is how many tokens two windows of a long text share: an entity that
    has no more is found whole.
    """

    aggregation: Aggregation = "simple"
    overlap: int = Field(default=64, ge=0)


@dataclass(frozen=True, slots=True)
class _Read:
    """A text, its tokens with where each came from, and its windows."""

    text: str
    tokens: Tokens
    offsets: list[tuple[int, int]]
    windows: list[Window]


class TokenClassifierAdapter(TextHeadAdapter):
    """One tagger on one device."""

    options = TokenClassifierOptions
    head = "AutoModelForTokenClassification"

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, TokenClassifierOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        self._options = options
        self._tags: tuple[str, ...] = ()
        self._labels: tuple[str, ...] = ()
        self._unknown: int | None = None

    def understand(self, model: Any, tokenizer: Any) -> None:
        """Find the tags and their labels."""
        config = model.config
        self._tags = tuple(config.id2label[index] for index in range(config.num_labels))
        self._labels = tuple(dict.fromkeys(kind_of(tag) for tag in self._tags if tag != OUTSIDE))
        self._unknown = tokenizer.unk_token_id
        self.check_labels(self._labels)

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Entities of each text; windows of all texts go through together."""
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        texts: dict[int, str] = {}
        for place, entry in enumerate(batch.entries):
            text = text_of(entry.item.payload)
            refused = text if isinstance(text, ItemRejected) else self.strange_label(self._labels, entry.work.options)
            if refused is not None:
                outcomes[place] = refused
            elif isinstance(text, str):
                texts[place] = text
        encoded = self.tokenizer.encode_with_offsets(list(texts.values())) if texts else []
        reads = {
            place: self._windowed(text, tokens, offsets)
            for (place, text), (tokens, offsets) in zip(texts.items(), encoded, strict=True)
        }
        rows = [read.tokens.part(window.first, window.stop) for read in reads.values() for window in read.windows]
        logits = iter(self.logits(rows, self.room(batch)) if rows else [])
        for place, read in reads.items():
            own = [next(logits) for _ in read.windows]
            outcomes[place] = self._told(read, own, batch.entries[place].work.options)
        return [outcome or WrongCount() for outcome in outcomes]

    def _windowed(self, text: str, tokens: Tokens, offsets: list[tuple[int, int]]) -> _Read:
        room = max(1, self.spec.max_length - tokens.first - tokens.last)
        return _Read(text, tokens, offsets, cut(offsets, len(text), room, min(self._options.overlap, room - 1)))

    def _told(self, read: _Read, logits: list[Logits], options: ExtractOptions) -> Output | NotFinite:
        if not all(np.isfinite(own).all() for own in logits):
            return NotFinite("The model gave no finite score for this item.")
        bioes = is_bioes(self._tags)
        found = [
            trimmed(
                read.text,
                spans(self._pieces(read, window, softmax(own)), self._tags, self._options.aggregation, bioes=bioes),
            )
            for window, own in zip(read.windows, logits, strict=True)
        ]
        whole = merge(read.windows, found, flat=True)
        wanted = set(options.labels or self._labels)
        whole = [span for span in whole if span.label in wanted]
        if options.merge_adjacent_entities:
            whole = merged_neighbours(read.text, whole)
        least = options.threshold or 0.0
        entities = [
            entity(read.text, span.label, span.score, span.start, span.end) for span in whole if span.score >= least
        ]
        fields: dict[str, Any] = {"entities": entities}
        if len(read.windows) > 1:
            fields["data"] = {"windows": len(read.windows)}
        return Output(fields, tokens=len(read.tokens.ids))

    def _pieces(self, read: _Read, window: Window, scores: Logits) -> list[Piece]:
        ids = read.tokens.body
        return [
            Piece(*read.offsets[place], scores[read.tokens.first + place - window.first], self._joins(read, ids, place))
            for place in range(window.first, window.stop)
        ]

    def _joins(self, read: _Read, ids: list[int], place: int) -> bool:
        """Whether a token goes on with the word before it, as the pipeline tells it."""
        if self._options.aggregation == "simple" or ids[place] == self._unknown:
            return False
        start, end = read.offsets[place]
        if self.tokenizer.marks_subwords:
            return len(self.tokenizer.token(ids[place])) != end - start
        return start > 0 and " " not in read.text[start - 1 : start + 1]
