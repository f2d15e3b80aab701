"""Classification by labels that the caller gives, through a model of inference.

Each label becomes a hypothesis, and its score says how far the text entails it. The pairs of all texts and labels of
all callers go through together. A text that does not fit beside its longest hypothesis goes in as windows, whose scores
come together as `engine.classes.combined` says.
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
from engine.classes import combined, told
from engine.errors import ItemRejected, LoadFailed, LoadReason, NotFinite, WrongCount
from engine.pairs import own_tokens
from engine.readings import text_of
from engine.text_head import Logits, TextHeadAdapter, softmax
from engine.torch_adapter import TorchOptions
from engine.types import Batch, Entry, Outcome, Output
from engine.windows import Window, cut

_TEMPLATE = "This example is {}."


class ZeroShotNliOptions(TorchOptions):
    """`template` makes a hypothesis of a label where the caller has no other.

    `overlap` is how many tokens two windows of a long text share.
    """

    template: str = _TEMPLATE
    overlap: int = Field(default=64, ge=0)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One text with what is asked of it: `rows` has the pairs of each window, in the order of the labels."""

    labels: list[str]
    windows: list[Window]
    rows: list[list[Tokens]]
    counted: int
    each: bool


class ZeroShotNliAdapter(TextHeadAdapter):
    """One model of inference on one device."""

    options = ZeroShotNliOptions
    head = "AutoModelForSequenceClassification"

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, ZeroShotNliOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        self._options = options
        self._entails = self._contradicts = 0

    def understand(self, model: Any, tokenizer: Any) -> None:
        """Find which label is the entailment, by its name."""
        names = {index: str(name).lower() for name, index in model.config.label2id.items()}
        entails = next((index for index, name in names.items() if name.startswith("entail")), None)
        if entails is None or len(names) < 2:
            message = f"{self.spec.id} has no label for entailment; it has {', '.join(names.values())}."
            raise LoadFailed(message, LoadReason.CONFIG)
        self._entails = entails
        # The same that the library takes: the first label, or the last where the first is the entailment.
        self._contradicts = len(names) - 1 if entails == 0 else 0
        self._template = self.tokenizer.pair_template()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Scores of the labels of each text."""
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        asked: dict[int, _Asked] = {}
        for place, entry in enumerate(batch.entries):
            found = self._ask(entry)
            if isinstance(found, _Asked):
                asked[place] = found
            else:
                outcomes[place] = found
        rows = [tokens for one in asked.values() for window in one.rows for tokens in window]
        logits = iter(self.logits(rows, self.room(batch)) if rows else [])
        for place, one in asked.items():
            own = [np.stack([next(logits) for _ in window]) for window in one.rows]
            outcomes[place] = self._told(one, own, batch.entries[place].work.options)
        return [outcome or WrongCount() for outcome in outcomes]

    def _ask(self, entry: Entry) -> _Asked | Output | ItemRejected:
        text, options = text_of(entry.item.payload), entry.work.options
        if isinstance(text, ItemRejected):
            return text
        labels = list(dict.fromkeys(options.labels or ()))
        if not labels:
            return ItemRejected("This model needs labels to choose from.", param="options.labels")
        template = self._options.template if options.hypothesis_template is None else options.hypothesis_template
        if "{}" not in template:
            return ItemRejected("The hypothesis template has no {} for the label.", param="options.hypothesis_template")
        if not text.strip():
            return Output({"classifications": []}, tokens=0)
        hypotheses = [template.replace("{}", label) for label in labels]
        tokens = own_tokens(self.tokenizer, [text, *hypotheses])
        longest = max(len(tokens[hypothesis]) for hypothesis in hypotheses)
        room = self.spec.max_length - self._template.size - longest
        if room < 1:
            return ItemRejected(
                f"A label has {longest} tokens, which leaves no room for the text.", param="options.labels"
            )
        own = tokens[text]
        places = [(index, index + 1) for index in range(len(own))]
        windows = cut(places, len(own), room, min(self._options.overlap, room - 1))
        rows = [
            [self._template.around(own[window.first : window.stop], tokens[hypothesis]) for hypothesis in hypotheses]
            for window in windows
        ]
        counted = self._template.size * len(labels) + len(own) + sum(len(tokens[each]) for each in hypotheses)
        return _Asked(labels, windows, rows, counted, options.multi_label or len(labels) == 1)

    def _told(self, asked: _Asked, logits: list[Logits], options: ExtractOptions) -> Output | NotFinite:
        if asked.each:
            scores = [softmax(own[:, [self._contradicts, self._entails]])[:, 1] for own in logits]
        else:
            scores = [softmax(own[:, self._entails]) for own in logits]
        if not all(np.isfinite(own).all() for own in scores):
            return NotFinite("The model gave no finite score for this item.")
        sizes = [max(1, window.units) for window in asked.windows]
        whole = combined(scores, sizes, (), each=asked.each)
        fields: dict[str, Any] = {
            "classifications": told(asked.labels, whole, threshold=options.threshold, top_k=options.top_k)
        }
        if len(asked.windows) > 1:
            fields["data"] = {"windows": len(asked.windows)}
        return Output(fields, tokens=asked.counted)
