"""Classification of texts by the caller's own labels, with GLiClass: all labels of a text in one pass.

Rows with labels, examples and instructions of their own share a pass, as the library's own preparation of inputs
allows. A text longer than the model reads is read in windows, and a label has its best score of any.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.modelfolder import read_json, weight_files
from catalog.options import ExtractOptions
from engine.checkpoint import Shape, read_names, read_shape
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite
from engine.findings import classification
from engine.pickled import refuse_random
from engine.readings import text_of
from engine.torch_adapter import TorchAdapter
from engine.types import Batch, Entry, Outcome, Output
from engine.windows import cut
from engine.wordwindows import share

if TYPE_CHECKING:
    import torch

_THRESHOLD = 0.5
_MARGIN = 8
"""Tokens that text and prompt may have more together than apart."""
_LEAST = 16
_KINDS = ("uni-encoder", "bi-encoder", "bi-encoder-fused", "encoder-decoder", "encoder-decoder-cls")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is asked of one item: the labels as the model reads them, and the text's windows; none of a blank text."""

    options: ExtractOptions
    labels: tuple[str, ...]
    read: tuple[str, ...]
    examples: tuple[Mapping[str, Any], ...]
    windows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """One window of one plan; `length` counts the tokens of the whole row, `around` those that are not its text's."""

    place: int
    plan: _Plan
    text: str
    length: int
    around: int


class GliclassAdapter(TorchAdapter):
    """A GLiClass as its library reads it."""

    _pipe: Any = None
    _tokenizer: Any = None

    def shape(self) -> Shape:
        """The encoder's sizes."""
        return read_shape(read_json(self.files / "config.json").get("encoder_config") or {"hidden_size": 768})

    def read(self) -> torch.nn.Module:
        """The library's model. Raises LoadFailed for kinds that are not served."""
        import torch
        from transformers import AutoTokenizer

        self._refuse(read_json(self.files / "config.json"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said by the library's imports
            from gliclass import GLiClassModel

        model: Any = GLiClassModel.from_pretrained(
            str(self.files), dtype=getattr(torch, self.dtype), use_safetensors=True, local_files_only=True
        )
        refuse_random(self.spec, model, read_names(weight_files(self.files)))
        self._tokenizer = AutoTokenizer.from_pretrained(str(self.files), local_files_only=True)
        module: torch.nn.Module = model
        return module

    def warm_up(self) -> None:
        """Make the library's pipeline, which prepares inputs as the model was trained with."""
        from gliclass import ZeroShotClassificationPipeline

        self._pipe = ZeroShotClassificationPipeline(
            self.ready(), self._tokenizer, max_length=self.spec.max_length, device=self.device, progress_bar=False
        ).pipe

    def forget(self) -> None:
        """Drop pipeline and tokenizer: the pipeline holds the model."""
        self._pipe = self._tokenizer = None

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Every window of every item, in as few passes as the memory that was lent allows."""
        model: Any = self.ready()
        plans = [self._plan(model, entry) for entry in batch.entries]
        rows = self._rows(plans)
        scores: list[list[list[float]]] = [[] for _ in plans]
        tokens = [0] * len(plans)
        for group in _groups(model.config, rows):
            around = [rows[place].around for place in group]
            lengths = [rows[place].length - rows[place].around for place in group]
            for chunk in share(lengths, max(batch.computed, *lengths), around):
                part = [rows[group[index]] for index in chunk]
                for row, logits in zip(part, self._logits(model, part), strict=True):
                    scores[row.place].append(logits)
                    tokens[row.place] += row.length
        return [
            plan if isinstance(plan, EngineError) else _answer(plan, own, count)
            for plan, own, count in zip(plans, scores, tokens, strict=True)
        ]

    def _refuse(self, config: Mapping[str, Any]) -> None:
        from transformers.models.auto import CONFIG_MAPPING

        kind = config.get("architecture_type", "uni-encoder")
        if kind not in _KINDS or config.get("multimodal"):
            message = f"{self.spec.id} is a GLiClass of kind {kind!r}; served are: {', '.join(_KINDS)}, of texts."
            raise LoadFailed(message, LoadReason.CONFIG)
        for own in ("encoder_config", "label_model_config"):
            encoder = config.get(own) or {}
            # The library would fetch and run code for an encoder that transformers does not know.
            if encoder.get("auto_map") or encoder.get("model_type", "deberta-v2") not in CONFIG_MAPPING:
                message = f"{self.spec.id} has an encoder with code of its own, which is not run."
                raise LoadFailed(message, LoadReason.CONFIG)

    def _plan(self, model: Any, entry: Entry) -> _Plan | EngineError:
        text = text_of(entry.item.payload)
        if isinstance(text, EngineError):
            return text
        options: ExtractOptions = entry.work.options
        facts = self.spec.tasks.extract
        labels = tuple(dict.fromkeys(options.labels or (facts.labels if facts else ())))
        if not labels:
            return ItemRejected("There are no labels to choose from: give them as 'labels'.", param="options.labels")
        template = options.hypothesis_template or "{}"
        read = tuple(template.replace("{}", label) for label in labels)
        config = model.config
        if config.max_labels_alloc == "fixed" and len(labels) > config.max_num_classes:
            message = f"{self.spec.id!r} takes at most {config.max_num_classes} labels."
            return ItemRejected(message, param="options.labels")
        examples = tuple(options.examples or ())
        wrong = next((index for index, one in enumerate(examples) if not _is_example(one)), None)
        if wrong is not None:
            return ItemRejected(
                "An example has a 'text' and 'labels', a list of texts.", param=f"options.examples[{wrong}]"
            )
        plan = _Plan(options, labels, read, examples, ())
        if not text.strip():
            return plan
        marked = self._marked(text, plan)
        if marked is not None:
            return marked
        around = self._length("", plan)
        room = self.spec.max_length - around - _MARGIN
        if room < _LEAST:
            return ItemRejected(
                f"Labels, instruction and examples take {around} of the {self.spec.max_length} tokens that "
                f"{self.spec.id!r} reads; give fewer or shorter ones.",
                param="options.labels",
            )
        found = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        windows = cut(found["offset_mapping"], len(text), room, room // 8)
        return _Plan(options, labels, read, examples, tuple(text[one.start : one.end] for one in windows))

    def _marked(self, text: str, plan: _Plan) -> ItemRejected | None:
        """Why the item holds what the model would take for the beginning of a label; None if it does not."""
        markers = (self._pipe.label_token, self._pipe.sep_token, self._pipe.example_token)
        told = plan.options.instruction or ""
        shown = (part for one in plan.examples for part in (one["text"], *one["labels"]))
        for param, texts in (("text", (text,)), ("options.labels", (*plan.read, told, *shown))):
            if any(marker in part for marker in markers for part in texts):
                return ItemRejected(f"Nothing may hold the model's own markers {', '.join(markers)}.", param=param)
        return None

    def _length(self, text: str, plan: _Plan) -> int:
        """How many tokens the text has with all that is read around it; in a bi-encoder labels are read apart."""
        return int(self._inputs([text], [plan], longest=None)["input_ids"].shape[1])

    def _inputs(self, texts: Sequence[str], plans: Sequence[_Plan], longest: int | None) -> Any:
        """The library's own inputs; `longest` None cuts nothing."""
        self._pipe.max_length = longest or 1_000_000
        return self._pipe.prepare_inputs(
            list(texts),
            [list(plan.read) for plan in plans],
            same_labels=False,
            examples=[list(plan.examples) or None for plan in plans],
            prompt=[plan.options.instruction or "" for plan in plans],
        )

    def _rows(self, plans: Sequence[_Plan | EngineError]) -> list[_Row]:
        rows = []
        for place, plan in enumerate(plans):
            if isinstance(plan, _Plan) and plan.windows:
                around = min(self._length("", plan), *(lengths := [self._length(text, plan) for text in plan.windows]))
                rows += [
                    _Row(place, plan, text, length, around) for text, length in zip(plan.windows, lengths, strict=True)
                ]
        return rows

    def _logits(self, model: Any, rows: Sequence[_Row]) -> list[list[float]]:
        return self.within_memory(f"a pass of {len(rows)} rows", lambda: self._pass(model, rows))

    def _pass(self, model: Any, rows: Sequence[_Row]) -> list[list[float]]:
        """Each row's logits, one for each of its labels."""
        import torch

        with torch.inference_mode():
            inputs = self._inputs([row.text for row in rows], [row.plan for row in rows], self.spec.max_length)
            most = self._pipe._resolve_max_num_classes([row.plan.read for row in rows], same_labels=False)
            logits = model(**inputs, max_num_classes=most).logits.float().cpu()
        return [logits[index, : len(row.plan.labels)].tolist() for index, row in enumerate(rows)]


def _is_example(one: Mapping[str, Any]) -> bool:
    labels = one.get("labels")
    known = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    return known and isinstance(one.get("text"), str) and set(one) == {"text", "labels"}


def _groups(config: Any, rows: Sequence[_Row]) -> list[list[int]]:
    """Rows that one pass may hold, by their places.

    A model that pools more than the first token pools padding as well, so that its rows are all of one length. One
    whose scorer sees all labels at once has rows with as many labels.
    """
    even = config.pooling_strategy != "first" or bool(config.use_segment_embeddings)
    apart = config.scorer_type in ("hopfield", "cross-attn")
    groups: dict[tuple[int, int], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault((row.length if even else 0, len(row.plan.labels) if apart else 0), []).append(place)
    return list(groups.values())


def _answer(plan: _Plan, logits: Sequence[Sequence[float]], tokens: int) -> Outcome:
    """The labels with their scores, the best first; of several windows each label has its highest.

    Where one label is chosen, scores of all add up to 1 and none is dropped unless a threshold says so.
    """
    import torch

    if not logits:
        return Output({"classifications": []})
    rows = torch.tensor(logits)
    if not rows.isfinite().all():
        return NotFinite("The model gave numbers that are none for this text.")
    single = not plan.options.multi_label
    scores = (rows.softmax(-1) if single else rows.sigmoid()).amax(0)
    if single and len(logits) > 1:
        scores = scores / scores.sum()
    default = 0.0 if single else _THRESHOLD
    threshold = default if plan.options.threshold is None else plan.options.threshold
    ranked = sorted(zip(plan.labels, scores.tolist(), strict=True), key=lambda pair: -pair[1])
    kept = [classification(label, score) for label, score in ranked if score >= threshold]
    return Output({"classifications": kept[: plan.options.top_k]}, tokens=tokens)
