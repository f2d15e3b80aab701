"""Classifiers with labels of their own: sentiment, toxicity, languages, guards against prompt injection.

A text longer than the model reads goes in as windows that overlap, and is never cut. The scores of its windows come
together by a rule (see `engine.classes.combined`): of labels that do not exclude each other the highest counts; where
they do, the mean over the windows, unless `alarm` names labels that one window is enough for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from catalog.options import ExtractOptions
from catalog.schema import Spec
from engine.adapters.base import LoadOptions
from engine.classes import Activation, activation_of, combined, told
from engine.errors import ItemRejected, LoadFailed, LoadReason, NotFinite, WrongCount
from engine.readings import text_of
from engine.text_head import Logits, TextHeadAdapter, sigmoid, softmax, windowed
from engine.torch_adapter import TorchOptions
from engine.types import Batch, Outcome, Output
from engine.windows import Window


class SequenceClassifierOptions(TorchOptions):
    """How long texts are read: `overlap` is how many tokens two windows share.

    `alarm` names labels that must not be averaged away: the window where they score highest decides.
    """

    overlap: int = Field(default=64, ge=0)
    alarm: tuple[str, ...] = ()


class SequenceClassifierAdapter(TextHeadAdapter):
    """One classifier on one device."""

    options = SequenceClassifierOptions
    head = "AutoModelForSequenceClassification"

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, SequenceClassifierOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        self._options = options
        self._labels: tuple[str, ...] = ()
        self._alarm: tuple[int, ...] = ()
        self._activation: Activation = "softmax"

    def understand(self, model: Any, tokenizer: Any) -> None:
        """Find the labels and what their logits mean."""
        config = model.config
        self._labels = tuple(config.id2label[index] for index in range(config.num_labels))
        activation = activation_of(config.problem_type, config.num_labels)
        if activation is None:
            message = f"{self.spec.id} gives a number and not the scores of labels (its problem_type is regression)."
            raise LoadFailed(message, LoadReason.CONFIG)
        self._activation = activation
        self.check_labels(self._labels, self._options.alarm)
        self._alarm = tuple(self._labels.index(label) for label in self._options.alarm)

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Labels with scores for each text; windows of all texts go through together."""
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        texts: dict[int, str] = {}
        for place, entry in enumerate(batch.entries):
            text = text_of(entry.item.payload)
            refused = text if isinstance(text, ItemRejected) else self.strange_label(self._labels, entry.work.options)
            if refused is not None:
                outcomes[place] = refused
            elif isinstance(text, str) and text.strip():
                texts[place] = text
            else:
                outcomes[place] = Output({"classifications": []}, tokens=0)
        read = dict(zip(texts, self.tokenizer.encode(list(texts.values())) if texts else [], strict=True))
        windows = {
            place: windowed(tokens, self.spec.max_length, self._options.overlap) for place, tokens in read.items()
        }
        rows = [tokens for parts in windows.values() for tokens, _ in parts]
        logits = iter(self.logits(rows, self.room(batch)) if rows else [])
        for place, parts in windows.items():
            own = [next(logits) for _ in parts]
            counted = len(read[place].ids)
            outcomes[place] = self._told(own, [w for _, w in parts], counted, batch.entries[place].work.options)
        return [outcome or WrongCount() for outcome in outcomes]

    def _told(
        self, logits: list[Logits], windows: list[Window], counted: int, options: ExtractOptions
    ) -> Output | NotFinite:
        scores = [sigmoid(own) if self._activation == "sigmoid" else softmax(own) for own in logits]
        if not all(np.isfinite(own).all() for own in scores):
            return NotFinite("The model gave no finite score for this item.")
        sizes = [max(1, window.units) for window in windows]
        whole = combined(scores, sizes, self._alarm, each=self._activation == "sigmoid")
        found = told(self._labels, whole, wanted=options.labels, threshold=options.threshold, top_k=options.top_k)
        fields: dict[str, Any] = {"classifications": found}
        if len(windows) > 1:
            fields["data"] = {"windows": len(windows)}
        return Output(fields, tokens=counted)
