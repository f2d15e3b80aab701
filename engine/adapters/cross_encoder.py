"""Rerankers that read query and passage together: classifiers with one label, as sentence-transformers has them.

The score is the logit under the activation that the model's own config names (a sigmoid where it names none), so its
`scale` in the YAML follows from the files and is checked at the load. Equal pairs of a batch are computed once: their
scores are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.heads import SCALES, activation_path
from catalog.modelfolder import model_root, read_json
from catalog.options import ScoreOptions
from catalog.schema import ScoreFacts, Spec
from engine.adapters.base import LoadOptions
from engine.errors import ItemRejected, LoadFailed, LoadReason, NotFinite, TextTooLong, WrongCount
from engine.pairs import Pair, longest_first, own_tokens
from engine.readings import text_of
from engine.text_head import TextHeadAdapter
from engine.types import Batch, Entry, Outcome, Output

if TYPE_CHECKING:
    import torch

_NO_NUMBER = "The model gave no finite score for this item."


class CrossEncoderAdapter(TextHeadAdapter):
    """One reranker on one device."""

    head = "AutoModelForSequenceClassification"

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if spec.tasks.score is None:
            raise LoadFailed(f"{spec.id} needs 'tasks.score' in its YAML to be of this family.", LoadReason.CONFIG)
        self._facts: ScoreFacts = spec.tasks.score
        self._activation: torch.nn.Module | None = None
        self._prompt = ""

    def understand(self, model: Any, tokenizer: Any) -> None:
        """Check that there is one label, and find the activation and the prompt in the configs."""
        if model.config.num_labels != 1:
            message = f"{self.spec.id} has {model.config.num_labels} labels, so it gives no one score for a pair."
            raise LoadFailed(message, LoadReason.CONFIG)
        library = read_json(self.files / "config_sentence_transformers.json")
        path = activation_path(library, read_json(model_root(self.files) / "config.json"))
        self._activation = _activation(self.spec.id, path)
        scale = SCALES.get(path.rsplit(".", 1)[-1])
        if scale is not None and scale != self._facts.scale:
            message = f"The scores of {self.spec.id} are of scale {scale!r}; its YAML says {self._facts.scale!r}."
            raise LoadFailed(message, LoadReason.CONFIG)
        prompts = library.get("prompts") or {}
        self._prompt = prompts.get(library.get("default_prompt_name") or "") or ""
        self._template = self.tokenizer.pair_template()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Scores of the pairs of all callers, whatever their queries, in passes of like lengths."""
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        pairs: dict[int, Pair] = {}
        texts = {place: self._texts(entry) for place, entry in enumerate(batch.entries)}
        own = own_tokens(self.tokenizer, [t for both in texts.values() if isinstance(both, tuple) for t in both])
        for place, both in texts.items():
            if isinstance(both, tuple):
                pair = self._pair(own[both[0]], own[both[1]], batch.entries[place].work.options)
                if isinstance(pair, Pair):
                    pairs[place] = pair
                else:
                    outcomes[place] = pair
            else:
                outcomes[place] = both
        self._score(batch, pairs, outcomes)
        return [outcome or WrongCount() for outcome in outcomes]

    def _texts(self, entry: Entry) -> tuple[str, str] | ItemRejected:
        query, text = text_of(entry.item.payload.get("query") or {}), text_of(entry.item.payload)
        if isinstance(query, ItemRejected):
            return ItemRejected(query.message.replace("The item", "The query"), param="query")
        if isinstance(text, ItemRejected):
            return text
        options: ScoreOptions = entry.work.options
        asked = options.instruction if options.instruction is not None else self._facts.instruction
        return (self._prompt if asked is None else asked) + query, text

    def _pair(self, query: list[int], text: list[int], options: ScoreOptions) -> Pair | ItemRejected | TextTooLong:
        longest = self.spec.max_length
        pair = longest_first(self._template, query, text, longest, keep_end=self.keep_end)
        if not pair.counted:
            return ItemRejected("The model's tokenizer finds nothing to read in this pair.", param="text")
        if pair.cut and not options.truncate:
            message = (
                f"Query and text have {pair.counted} tokens and the model reads {longest}; shorten them or allow "
                "truncation."
            )
            return TextTooLong(message, param="text")
        return pair

    def _score(self, batch: Batch, pairs: dict[int, Pair], outcomes: list[Outcome | None]) -> None:
        import torch

        if not pairs:
            return
        keys = {place: (tuple(pair.tokens.ids), tuple(pair.tokens.type_ids)) for place, pair in pairs.items()}
        different = {keys[place]: pair.tokens for place, pair in pairs.items()}
        raw = np.concatenate(self.logits(list(different.values()), self.room(batch)))
        if self._activation is None:
            raise RuntimeError("run before load or restore")
        scores = self._activation(torch.from_numpy(raw)).numpy()
        found = dict(zip(different, zip(scores.tolist(), raw.tolist(), strict=True), strict=True))
        for place, pair in pairs.items():
            score, logit = found[keys[place]]
            if np.isfinite(score) and np.isfinite(logit):
                fields = {"score": score, "raw_score": logit}
                outcomes[place] = Output(fields, tokens=pair.counted, truncated=pair.cut)
            else:
                outcomes[place] = NotFinite(_NO_NUMBER)


def _activation(name: str, path: str) -> torch.nn.Module:
    module, _, kind = path.rpartition(".")
    found: torch.nn.Module | None = None
    if path.startswith("torch.nn."):
        with suppress(ImportError, AttributeError, TypeError):
            found = getattr(import_module(module), kind)()
    if found is None:
        message = f"{name} names an activation that is not torch's own ({path[:200]}), which is not run."
        raise LoadFailed(message, LoadReason.CONFIG)
    return found
