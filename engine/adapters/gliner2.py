"""Entities, classes, relations and structures of a text in one call, with GLiNER2.

What a caller asks by labels and by a schema becomes one schema of the library's, and rows with schemas of their own
share a pass. A text longer than the model reads is read in windows; the library's own rules bring their results
together.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from catalog.modelfolder import read_json
from catalog.options import ExtractOptions
from engine.checkpoint import Shape, read_shape
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite
from engine.extraction_schema import Asked, SchemaRefused, read_schema
from engine.gliner2_results import fields_of
from engine.pickled import folder_weights, pickled_file, refuse_random, weight_names
from engine.readings import text_of
from engine.torch_adapter import FLOAT_BYTES, TorchAdapter
from engine.types import Batch, Entry, Footprint, Outcome, Output
from engine.windows import Window
from engine.wordwindows import Words, cut_words, share

if TYPE_CHECKING:
    import torch

_ENCODER = "encoder_config/config.json"
_THRESHOLD = 0.5
_OVERLAP = 64
_LEAST_PIECES = 16
_UNBOUNDED = 10**6


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a job asks: the caller's schema, the library's of all that is asked, and how many tokens that takes.

    `room` is how many pieces of text a window may have beside it.
    """

    options: ExtractOptions
    native: Asked | None
    schema: Any
    around: int
    room: int

    @property
    def threshold(self) -> float:
        return _THRESHOLD if self.options.threshold is None else self.options.threshold

    @property
    def policy(self) -> str | None:
        """What the library does with entities of one label that overlap; None is its own way, in which none do."""
        return None if self.options.flat_ner else "nested"


@dataclass(frozen=True, slots=True)
class _Plan:
    """One item: what is asked and the windows of its text, none of a blank one; `lengths` counts their tokens."""

    text: str
    asked: _Asked
    windows: tuple[Window, ...]
    lengths: tuple[int, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class _Row:
    place: int
    plan: _Plan
    window: Window
    length: int

    @property
    def text(self) -> str:
        return self.plan.text[self.window.start : self.window.end]


class Gliner2Adapter(TorchAdapter):
    """A GLiNER2 as its library reads it, of either architecture."""

    _bad: list[bool] | None = None

    def weight_bytes(self) -> int:
        """Of safetensors, or of the allowed pickle."""
        return folder_weights(self.spec, self.files, FLOAT_BYTES[self.dtype]).bytes

    def shape(self) -> Shape:
        """The encoder's sizes."""
        return read_shape(read_json(self.files / _ENCODER) or {"hidden_size": 768})

    def footprint(self) -> Footprint:
        """The encoder's activations, and twelve vectors for each span that begins with a word."""
        encoder = super().footprint()
        width = int(read_json(self.files / "config.json").get("max_width") or 8)
        return Footprint(
            encoder.weights, encoder.per_token + FLOAT_BYTES[self.dtype] * 12 * width * self.shape().hidden
        )

    def read(self) -> torch.nn.Module:
        """The library's model. Raises LoadFailed for files that are not served."""
        import torch

        pickled_file(self.spec, self.files)
        if read_json(self.files / _ENCODER).get("auto_map") and "code" not in self.spec.source.needs:
            message = f"{self.spec.id} has an encoder with code of its own, which its YAML does not allow."
            raise LoadFailed(message, LoadReason.CONFIG)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said by the library's imports, and of old tokenizer files
            from gliner2 import AutoExtractor

            model: Any = AutoExtractor.from_pretrained(str(self.files), map_location="cpu")
        refuse_random(self.spec, model, weight_names(self.spec, self.files))
        model.encoder.register_forward_hook(self._watch)
        self._hard = _positions(model)
        module: torch.nn.Module = model.to(getattr(torch, self.dtype))
        return module

    def _watch(self, _module: Any, _given: Any, output: Any) -> None:
        """Note the rows whose states are no numbers: the library would find nothing in them, and say nothing."""
        self._bad = output.last_hidden_state.isnan().flatten(1).any(1).tolist()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Every window of every item, in as few passes as the memory that was lent allows."""
        model: Any = self.ready()
        asked: dict[int, _Asked | ItemRejected] = {}
        plans = [self._plan(model, entry, asked) for entry in batch.entries]
        rows = [
            _Row(place, plan, window, length)
            for place, plan in enumerate(plans)
            if isinstance(plan, _Plan)
            for window, length in zip(plan.windows, plan.lengths, strict=True)
        ]
        found: dict[int, Any] = {}
        groups: dict[tuple[float, str | None], list[int]] = {}
        for place, row in enumerate(rows):
            groups.setdefault((row.plan.asked.threshold, row.plan.asked.policy), []).append(place)
        for group in groups.values():
            lengths = [rows[place].length for place in group]
            around = [rows[place].plan.asked.around for place in group]
            for chunk in share(lengths, max(batch.computed, self.spec.max_length), around):
                places = [group[index] for index in chunk]
                found.update(zip(places, self._pass(model, [rows[place] for place in places]), strict=True))
        each: list[list[Any]] = [[] for _ in plans]
        for place, row in enumerate(rows):
            each[row.place].append(found[place])
        return [
            plan if isinstance(plan, EngineError) else self._answer(model, plan, own)
            for plan, own in zip(plans, each, strict=True)
        ]

    def _plan(self, model: Any, entry: Entry, asked: dict[int, _Asked | ItemRejected]) -> _Plan | EngineError:
        """What is asked of an item; `asked` keeps what was made of each job's options."""
        text = text_of(entry.item.payload)
        if isinstance(text, EngineError):
            return text
        options: ExtractOptions = entry.work.options
        if id(options) not in asked:
            asked[id(options)] = self._asked(model, options)
        found = asked[id(options)]
        if isinstance(found, ItemRejected):
            return found
        words = _words(model, text)
        if not words.offsets:
            return _Plan(text, found, (), (), truncated=False)
        cut = cut_words(words, len(text), most_words=found.room, most_pieces=found.room, overlap=_OVERLAP)
        lengths = tuple(sum(words.pieces[one.first : one.stop]) for one in cut.windows)
        return _Plan(text, found, cut.windows, lengths, cut.truncated)

    def _asked(self, model: Any, options: ExtractOptions) -> _Asked | ItemRejected:
        try:
            native = None if options.output_schema is None else read_schema(options.output_schema)
            schema = _schema(options, native)
        except SchemaRefused as error:
            return ItemRejected(f"The schema cannot be read: {error}.", param="options.output_schema")
        if schema is None:
            message = "Nothing is asked: give 'labels', 'relation_labels' or an 'output_schema'."
            return ItemRejected(message, param="options.labels")
        if options.classification_task is not None and not options.labels:
            return ItemRejected(
                "'classification_task' needs 'labels': the classes.", param="options.classification_task"
            )
        if options.multi_label and options.classification_task is None:
            message = "'multi_label' is for the classes of a 'classification_task'; name one, or leave it out."
            return ItemRejected(message, param="options.multi_label")
        around = len(model.processor.transform_record(".", schema).input_ids)
        longest = self.spec.max_length
        room = min(longest, self._hard - around if self._hard else longest)
        if room < _LEAST_PIECES or around > longest:
            most = min(longest, self._hard - _LEAST_PIECES if self._hard else longest)
            return ItemRejected(
                f"What is asked takes {around} tokens, and {self.spec.id!r} has room for {most}; ask for less.",
                param="options.labels" if native is None else "options.output_schema",
            )
        return _Asked(options, native, schema, around, room)

    def _pass(self, model: Any, rows: Sequence[_Row]) -> list[Any]:
        """What the library finds in each row, with scores and offsets; NotFinite for a row of none numbers."""
        first = rows[0].plan.asked

        def call() -> list[Any]:
            return list(
                model.batch_extract(
                    [row.text for row in rows],
                    [row.plan.asked.schema for row in rows],
                    batch_size=len(rows),
                    threshold=first.threshold,
                    include_confidence=True,
                    include_spans=True,
                    overlap_policy=first.policy,
                )
            )

        found = self.within_memory(f"a pass of {len(rows)} rows", call)
        bad = self._bad or [False] * len(rows)
        wrong = NotFinite("The model gave numbers that are none for this text.")
        return [wrong if broken else one for broken, one in zip(bad, found, strict=True)]

    def _answer(self, model: Any, plan: _Plan, found: Sequence[Any]) -> Outcome:
        for one in found:
            if isinstance(one, NotFinite):
                return one
        asked = plan.asked
        whole: Mapping[str, Any] = found[0] if len(found) == 1 else {}
        if len(found) > 1:
            from gliner2.inference.chunking import TextChunk, merge_chunk_results

            whole = merge_chunk_results(
                plan.text,
                [
                    TextChunk(plan.text[one.start : one.end], one.start, one.end, one.first, one.stop)
                    for one in plan.windows
                ],
                list(found),
                include_confidence=True,
                include_spans=True,
                scalar_entity_labels=model._scalar_entity_labels(asked.schema),
                overlap_policy=model._resolved_overlap_policy(asked.policy),
            )
        fields = fields_of(plan.text, asked.options, asked.native, asked.schema.build(), whole)
        return Output(fields, tokens=sum(asked.around + one for one in plan.lengths), truncated=plan.truncated)


def _schema(options: ExtractOptions, asked: Asked | None) -> Any:
    """The library's schema of all that is asked; None if nothing is. Raises SchemaRefused."""
    from gliner2 import Schema

    if asked is None and not options.labels and not options.relation_labels:
        return None
    try:
        schema = Schema() if asked is None else Schema.from_dict(dict(asked.native))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise SchemaRefused(f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}") from error
    except ValueError as error:
        raise SchemaRefused(str(error)[:300]) from error
    labels = list(dict.fromkeys(options.labels or ()))
    task = options.classification_task
    if labels and task is None:
        schema.entities(labels)
    elif labels and task is not None:
        threshold = _THRESHOLD if options.threshold is None else options.threshold
        schema.classification(task, labels, multi_label=options.multi_label, cls_threshold=threshold)
    if options.relation_labels:
        schema.relations(list(dict.fromkeys(options.relation_labels)), threshold=options.relation_threshold)
    return schema


def _words(model: Any, text: str) -> Words:
    """The text's words as the model splits it, with how many tokens each one is."""
    words = list(model.processor.word_splitter(text, lower=True))
    if not words:
        return Words((), ())
    encoded = model.processor.tokenizer(
        [word for word, _, _ in words], is_split_into_words=False, add_special_tokens=False, verbose=False
    )
    pieces = tuple(len(ids) for ids in encoded["input_ids"])
    return Words(tuple((start, end) for _, start, end in words), pieces)


def _positions(model: Any) -> int:
    """How many tokens the encoder can read at all; 0 where there is no end to it."""
    rows = [
        int(part.num_embeddings) - (0 if part.padding_idx is None else part.padding_idx + 1)
        for name, part in model.encoder.named_modules()
        if name.endswith("position_embeddings") and hasattr(part, "num_embeddings")
    ]
    longest = model.processor.tokenizer.model_max_length
    return min([*rows, *([int(longest)] if longest < _UNBOUNDED else [])], default=0)
