"""Entities by the caller's own labels, and relations between them, with models of GLiNER's first generation.

Uni-encoders and bi-encoders, by spans or by tokens, and those that find relations too. Rows with labels, thresholds and
flags of their own share a pass. A text longer than the model reads is read in windows that overlap.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.modelfolder import read_json
from catalog.options import ExtractOptions
from catalog.schema import ExtractKind
from engine.checkpoint import Shape, read_shape
from engine.entityrows import Found, Plan, Related, Row, answers, rows_of
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite
from engine.pickled import folder_weights, pickled_file, refuse_random, weight_names
from engine.readings import text_of
from engine.torch_adapter import FLOAT_BYTES, TorchAdapter
from engine.types import Batch, Entry, Footprint, Outcome
from engine.wordwindows import Cut, Words, cut_words, share

if TYPE_CHECKING:
    import torch

CONFIG = "gliner_config.json"
_OVERLAP = 24
"""Words that neighbouring windows share, or as many as the widest span has if that is more."""
_LEAST_PIECES = 16
"""Labels that leave a window less room than this are too many."""
_UNBOUNDED = 10**6
"""What a tokenizer says that knows no limit is far above this."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a job looks for, how many tokens that takes, and how many pieces of text a window may have beside it."""

    labels: tuple[str, ...]
    relations: tuple[str, ...]
    around: int
    room: int


class GlinerAdapter(TorchAdapter):
    """A GLiNER as its library reads it; `module` is the library's own object."""

    _hard: int = 0
    _collator: Any = None

    def weight_bytes(self) -> int:
        """Of safetensors, or of the allowed pickle."""
        return folder_weights(self.spec, self.files, FLOAT_BYTES[self.dtype]).bytes

    def shape(self) -> Shape:
        """The encoder's sizes; those of a base model where the folder does not say."""
        return read_shape(read_json(self.files / CONFIG).get("encoder_config") or {"hidden_size": 768})

    def footprint(self) -> Footprint:
        """The encoder's activations, and in models by spans twelve vectors for each span that begins with a word."""
        config = read_json(self.files / CONFIG)
        spans = 0 if config.get("span_mode") == "token_level" else int(config.get("max_width") or 12)
        encoder = super().footprint()
        size = FLOAT_BYTES[self.dtype] * 12 * spans * int(config.get("hidden_size") or 512)
        return Footprint(encoder.weights, encoder.per_token + size)

    def read(self) -> torch.nn.Module:
        """The library's object. Raises LoadFailed for kinds of models and of files that are not served."""
        import torch

        self._refuse(read_json(self.files / CONFIG))
        with warnings.catch_warnings():
            # Said of every bi-encoder, and of ways of torch's that the library's imports still take.
            warnings.simplefilter("ignore")
            from gliner import GLiNER

            model: Any = GLiNER.from_pretrained(str(self.files), map_location="cpu", dtype=getattr(torch, self.dtype))
        refuse_random(self.spec, model.model, weight_names(self.spec, self.files))
        self._hard = _positions(model)
        self._collator = model.create_collator()
        module: torch.nn.Module = model
        return module

    def forget(self) -> None:
        """Drop the collator, which holds the tokenizers."""
        self._collator = None

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Every window of every item, in as few passes as the memory that was lent allows."""
        model: Any = self.ready()
        asked: dict[int, _Asked | ItemRejected] = {}
        plans = [self._plan(model, entry, asked) for entry in batch.entries]
        rows = rows_of(plans)
        found: dict[int, Found | NotFinite] = {}
        for group in _groups(model.config, rows):
            lengths = [rows[place].pieces for place in group]
            around = [rows[place].plan.around for place in group]
            for chunk in share(lengths, max(batch.computed, self.spec.max_length), around):
                places = [group[index] for index in chunk]
                found.update(zip(places, self._pass(model, [rows[place] for place in places]), strict=True))
        return answers(plans, rows, [found[place] for place in range(len(rows))], relations=self._relates)

    @property
    def _relates(self) -> bool:
        facts = self.spec.tasks.extract
        return facts is not None and ExtractKind.RELATIONS in facts.kinds

    def _refuse(self, config: Mapping[str, Any]) -> None:
        pickled_file(self.spec, self.files)
        if not config:
            raise LoadFailed(f"{self.files} has no {CONFIG}: it is no GLiNER.", LoadReason.CORRUPT)
        if config.get("labels_decoder") or config.get("model_type") == "gliner_streaming_span":
            message = f"{self.spec.id} generates its labels or reads streams; GLiNERs of that kind are not served."
            raise LoadFailed(message, LoadReason.CONFIG)
        if self._relates != (config.get("relations_layer") is not None):
            said = "finds" if config.get("relations_layer") is not None else "does not find"
            message = f"{self.spec.id} {said} relations, and its YAML says otherwise: mend tasks.extract.kinds."
            raise LoadFailed(message, LoadReason.CONFIG)
        if "code" not in self.spec.source.needs and _brings_code(config):
            message = f"{self.spec.id} has an encoder with code of its own, which its YAML does not allow."
            raise LoadFailed(message, LoadReason.CONFIG)

    def _plan(self, model: Any, entry: Entry, asked: dict[int, _Asked | ItemRejected]) -> Plan | EngineError:
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
            return Plan(text, (), options, found.labels, found.relations, Cut((), truncated=False))
        overlap = max(_OVERLAP, int(model.config.max_width))
        most = int(model.config.max_len)
        cut = cut_words(words, len(text), most_words=most, most_pieces=found.room, overlap=overlap)
        return Plan(text, words.pieces, options, found.labels, found.relations, cut, found.around)

    def _asked(self, model: Any, options: ExtractOptions) -> _Asked | ItemRejected:
        """The labels that are looked for. Those of the YAML stand in for those that the caller leaves out."""
        facts = self.spec.tasks.extract
        labels = tuple(dict.fromkeys(options.labels or (facts.labels if facts else ())))
        if not labels:
            return ItemRejected("There are no labels to look for: give them as 'labels'.", param="options.labels")
        relations = tuple(dict.fromkeys(options.relation_labels or ())) if self._relates else ()
        markers = tuple(model._get_special_tokens())
        for label in (*labels, *relations):
            if any(marker in label for marker in markers):
                message = f"The label {label[:100]!r} holds a marker of the model's own."
                return ItemRejected(message, param="options.labels")
        around = self._prompt(model, labels, relations)
        longest = self.spec.max_length
        # Positions that do not end are no reason to read labels without end.
        room = min(longest, self._hard - around if self._hard else longest) - 2
        if room < _LEAST_PIECES or around > longest:
            most = min(longest, self._hard - 2 - _LEAST_PIECES if self._hard else longest)
            return ItemRejected(
                f"The labels take {around} tokens, and {self.spec.id!r} has room for {most}; give fewer or shorter.",
                param="options.labels",
            )
        return _Asked(labels, relations, around, room)

    def _prompt(self, model: Any, labels: Sequence[str], relations: Sequence[str]) -> int:
        """How many tokens the labels take beside each window; none where a model reads them apart."""
        if hasattr(model.data_processor, "labels_tokenizer"):
            return 0
        read = [*labels, *relations]
        encoded = model.data_processor.transformer_tokenizer(read, add_special_tokens=False, verbose=False)
        # Each label has a marker, and there are one or two separators.
        return sum(1 + len(ids) for ids in encoded["input_ids"]) + 2

    def _pass(self, model: Any, rows: Sequence[Row]) -> list[Found | NotFinite]:
        """One forward pass over these rows, each with labels and thresholds of its own."""
        return self.within_memory(f"a pass of {len(rows)} rows", lambda: _pass(model, self._collator, rows))


def _pass(model: Any, collator: Any, rows: Sequence[Row]) -> list[Found | NotFinite]:
    plans = [row.plan for row in rows]
    given = {"relations": [list(plan.relations) for plan in plans]} if hasattr(model.config, "rel_token") else {}
    prepared = model.prepare_batch([row.text for row in rows], [list(plan.labels) for plan in plans], **given)
    types = {"relation_types": prepared["relation_types"]} if given else {}
    batch = model.collate_batch(prepared["input_x"], prepared["entity_types"], collator, **types)
    output = model.run_batch(batch, threshold=plans[0].threshold)
    flags: dict[str, Any] = {
        "threshold": [plan.threshold for plan in plans],
        "flat_ner": [plan.options.flat_ner for plan in plans],
        "multi_label": [plan.options.multi_label for plan in plans],
    }
    if given:
        flags["relation_threshold"] = [plan.relation_threshold for plan in plans]
    decoded = model.decode_batch(output, batch, **flags)
    where = [prepared[name] for name in ("valid_texts", "valid_to_orig_idx", "start_token_map", "end_token_map")]
    spans = decoded[0] if given else decoded
    entities = model.map_entities_to_text(spans, *where, len(rows))
    related = model.map_relations_to_text(decoded[1], spans, *where, len(rows)) if given else [[]] * len(rows)
    bad = output[0].isnan().flatten(1).any(1).tolist()
    tokens = batch["token_lengths"]
    return [
        NotFinite("The model gave numbers that are none for this text.")
        if bad[index]
        else Found(
            tuple(row.span(one["start"], one["end"], one["label"], one["score"]) for one in entities[index]),
            tuple(_related(row, one, entities[index]) for one in related[index]),
            int(tokens[index]),
        )
        for index, row in enumerate(rows)
    ]


def _related(row: Row, one: Mapping[str, Any], entities: Sequence[Mapping[str, Any]]) -> Related:
    head, tail = (entities[one[side]["entity_idx"]] for side in ("head", "tail"))
    ends = [row.span(end["start"], end["end"], end["label"], end["score"]) for end in (head, tail)]
    return ends[0], ends[1], one["relation"], one["score"]


def _words(model: Any, text: str) -> Words:
    """The text's words as the model splits it, with how many tokens each one is."""
    words = list(model.data_processor.words_splitter(text))
    if not words:
        return Words((), ())
    encoded = model.data_processor.transformer_tokenizer(
        [word for word, _, _ in words], is_split_into_words=True, add_special_tokens=False, verbose=False
    )
    pieces = [0] * len(words)
    for place in encoded.word_ids():
        if place is not None:
            pieces[place] += 1
    return Words(tuple((start, end) for _, start, end in words), tuple(pieces))


def _groups(config: Any, rows: Sequence[Row]) -> list[list[int]]:
    """Rows that one pass may hold, by their places.

    Where relations or spans are picked inside the forward pass, it has one threshold for all. Models by tokens that
    represent spans see padding there, so that their rows have as many words each.
    """
    picks = getattr(config, "relations_layer", None) is not None
    spans = config.span_mode == "token_level" and bool(getattr(config, "represent_spans", False))
    groups: dict[tuple[float, int], list[int]] = {}
    for place, row in enumerate(rows):
        key = (row.plan.threshold if picks or spans else 0.0, row.window.units if spans else 0)
        groups.setdefault(key, []).append(place)
    return list(groups.values())


def _positions(model: Any) -> int:
    """How many tokens the model can read at all; 0 where there is no end to it."""
    rows = [
        int(part.num_embeddings) - (0 if part.padding_idx is None else part.padding_idx + 1)
        for name, part in model.model.token_rep_layer.named_modules()
        if name.endswith("position_embeddings") and hasattr(part, "num_embeddings")
    ]
    longest = model.data_processor.transformer_tokenizer.model_max_length
    return min([*rows, *([int(longest)] if longest < _UNBOUNDED else [])], default=0)


def _brings_code(config: Mapping[str, Any]) -> bool:
    """Whether an encoder's config names code: the library would run it. Encoders that are only named are looked up."""
    from transformers import AutoConfig

    for name, own in (("model_name", "encoder_config"), ("labels_encoder", "labels_encoder_config")):
        encoder = config.get(own)
        if encoder is None and config.get(name):
            encoder = AutoConfig.from_pretrained(config[name], trust_remote_code=False).to_dict()
        if encoder and encoder.get("auto_map"):
            return True
    return False
