"""Classification of texts by the caller's own labels, with GLiClass: all labels of a text in one pass.

Rows with labels, examples and instructions of their own share a pass, as the library's own preparation of inputs
allows. A text longer than the model reads is read in windows, and a label has its best score of any.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
class _Asked:
    """What a job asks: its labels, how the model reads them, and how many tokens all but the text takes."""

    options: ExtractOptions
    labels: tuple[str, ...]
    read: tuple[str, ...]
    examples: tuple[Mapping[str, Any], ...]
    around: int = 0

    @property
    def told(self) -> str:
        """What the model reads before the text."""
        return self.options.instruction or ""


@dataclass(frozen=True, slots=True)
class _Row:
    """One window of one item; `units` counts the tokens of its text."""

    place: int
    asked: _Asked
    text: str
    units: int


_Rows = list[_Row]


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
        asked: dict[int, _Asked | ItemRejected] = {}
        plans = [self._plan(model, place, entry, asked) for place, entry in enumerate(batch.entries)]
        rows = [row for plan in plans if not isinstance(plan, EngineError) for row in plan]
        logits: list[list[list[float]]] = [[] for _ in plans]
        tokens = [0] * len(plans)
        for group in self._groups(model.config, rows):
            lengths = [rows[place].units for place in group]
            around = [rows[place].asked.around for place in group]
            for chunk in share(lengths, max(batch.computed, self.spec.max_length), around):
                part = [rows[group[index]] for index in chunk]
                for row, (own, count) in zip(part, self._logits(model, part), strict=True):
                    logits[row.place].append(own)
                    tokens[row.place] += count
        return [
            plan if isinstance(plan, EngineError) else _answer(plan, own, count)
            for plan, own, count in zip(plans, logits, tokens, strict=True)
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

    def _plan(
        self, model: Any, place: int, entry: Entry, asked: dict[int, _Asked | ItemRejected]
    ) -> _Rows | EngineError:
        """The windows of an item, none of a blank text; `asked` keeps what was made of each job's options."""
        text = text_of(entry.item.payload)
        if isinstance(text, EngineError):
            return text
        options: ExtractOptions = entry.work.options
        if id(options) not in asked:
            asked[id(options)] = self._asked(model, options)
        found = asked[id(options)]
        if isinstance(found, ItemRejected):
            return found
        if any(marker in text for marker in self._markers()):
            return ItemRejected(f"No text may hold the model's own markers {', '.join(self._markers())}.", param="text")
        if not text.strip():
            return []
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        room = self.spec.max_length - found.around - _MARGIN
        windows = cut(encoded["offset_mapping"], len(text), room, room // 8)
        return [_Row(place, found, text[one.start : one.end], one.units) for one in windows]

    def _asked(self, model: Any, options: ExtractOptions) -> _Asked | ItemRejected:
        facts = self.spec.tasks.extract
        labels = tuple(dict.fromkeys(options.labels or (facts.labels if facts else ())))
        if not labels:
            return ItemRejected("There are no labels to choose from: give them as 'labels'.", param="options.labels")
        config = model.config
        if config.max_labels_alloc == "fixed" and len(labels) > config.max_num_classes:
            message = f"{self.spec.id!r} takes at most {config.max_num_classes} labels."
            return ItemRejected(message, param="options.labels")
        examples = tuple(options.examples or ())
        wrong = next((index for index, one in enumerate(examples) if not _is_example(one)), None)
        if wrong is not None:
            message = "An example has a 'text' and 'labels', a list of texts."
            return ItemRejected(message, param=f"options.examples[{wrong}]")
        template = options.hypothesis_template or "{}"
        asked = _Asked(options, labels, tuple(template.replace("{}", label) for label in labels), examples)
        shown = (part for one in examples for part in (one["text"], *one["labels"]))
        if any(marker in part for part in (*asked.read, asked.told, *shown) for marker in self._markers()):
            message = f"Nothing may hold the model's own markers {', '.join(self._markers())}."
            return ItemRejected(message, param="options.labels")
        around = self._length("", asked)
        if self.spec.max_length - around - _MARGIN < _LEAST:
            return ItemRejected(
                f"Labels, instruction and examples take {around} of the {self.spec.max_length} tokens that "
                f"{self.spec.id!r} reads; give fewer or shorter ones.",
                param="options.labels",
            )
        return replace(asked, around=around)

    def _markers(self) -> tuple[str, ...]:
        return self._pipe.label_token, self._pipe.sep_token, self._pipe.example_token

    def _length(self, text: str, asked: _Asked) -> int:
        """How many tokens the text has with all that is read around it; in a bi-encoder labels are read apart."""
        return int(self._inputs([text], [asked], longest=None)["input_ids"].shape[1])

    def _inputs(self, texts: Sequence[str], asked: Sequence[_Asked], longest: int | None) -> Any:
        """The library's own inputs; `longest` None cuts nothing."""
        self._pipe.max_length = longest or 1_000_000
        return self._pipe.prepare_inputs(
            list(texts),
            [list(one.read) for one in asked],
            same_labels=False,
            examples=[list(one.examples) or None for one in asked],
            prompt=[one.told for one in asked],
        )

    def _groups(self, config: Any, rows: Sequence[_Row]) -> list[list[int]]:
        """Rows that one pass may hold, by their places.

        A model that pools more than the first token pools padding as well, so that its rows are all of one length. One
        whose scorer sees all labels at once has rows with as many labels.
        """
        even = config.pooling_strategy != "first" or bool(config.use_segment_embeddings)
        apart = config.scorer_type in ("hopfield", "cross-attn")
        groups: dict[tuple[int, int], list[int]] = {}
        for place, row in enumerate(rows):
            length = self._length(row.text, row.asked) if even else 0
            groups.setdefault((length, len(row.asked.labels) if apart else 0), []).append(place)
        return list(groups.values())

    def _logits(self, model: Any, rows: Sequence[_Row]) -> list[tuple[list[float], int]]:
        return self.within_memory(f"a pass of {len(rows)} rows", lambda: self._pass(model, rows))

    def _pass(self, model: Any, rows: Sequence[_Row]) -> list[tuple[list[float], int]]:
        """Each row's logits, one for each of its labels, and how many tokens were read for it."""
        import torch

        with torch.inference_mode():
            inputs = self._inputs([row.text for row in rows], [row.asked for row in rows], self.spec.max_length)
            counts = inputs["attention_mask"].sum(1).tolist()
            most = self._pipe._resolve_max_num_classes([row.asked.read for row in rows], same_labels=False)
            logits = model(**inputs, max_num_classes=most).logits.float().cpu()
        return [
            (logits[index, : len(row.asked.labels)].tolist(), count)
            for index, (row, count) in enumerate(zip(rows, counts, strict=True))
        ]


def _is_example(one: Mapping[str, Any]) -> bool:
    labels = one.get("labels")
    known = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    return known and isinstance(one.get("text"), str) and set(one) == {"text", "labels"}


def _answer(rows: _Rows, logits: Sequence[Sequence[float]], tokens: int) -> Outcome:
    """The labels with their scores, the best first; of several windows each label has its highest.

    Where one label is chosen, scores of all add up to 1 and none is dropped unless a threshold says so.
    """
    import torch

    if not rows:
        return Output({"classifications": []})
    asked, found = rows[0].asked, torch.tensor(logits)
    if not found.isfinite().all():
        return NotFinite("The model gave numbers that are none for this text.")
    options = asked.options
    single = not options.multi_label
    scores = (found.softmax(-1) if single else found.sigmoid()).amax(0)
    if single and len(logits) > 1:
        scores = scores / scores.sum()
    default = 0.0 if single else _THRESHOLD
    threshold = default if options.threshold is None else options.threshold
    ranked = sorted(zip(asked.labels, scores.tolist(), strict=True), key=lambda pair: -pair[1])
    kept = [classification(label, score) for label, score in ranked if score >= threshold]
    return Output({"classifications": kept[: options.top_k]}, tokens=tokens)
