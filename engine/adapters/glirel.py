"""Relations between entities that come with the text, by the caller's own labels, with GLiREL.

The library's loader does not go with present hub clients and fetches the encoder's own weights, which the checkpoint
replaces; so the model is built here of the library's parts. Its collator orders labels at random; here each row keeps
the order that the caller gave, so that an answer does not change from one process to the next.
"""

from __future__ import annotations

import re
import threading
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from catalog.modelfolder import read_json, weight_files
from catalog.options import ExtractOptions
from engine.checkpoint import Shape, read_shape
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite
from engine.findings import entity, relation
from engine.pickled import folder_weights, pickled_file, read_pickle, refuse_random, weight_names
from engine.readings import text_of
from engine.torch_adapter import FLOAT_BYTES, TorchAdapter, TorchOptions
from engine.types import Batch, Entry, Outcome, Output
from engine.wordwindows import Words, cut_words, share

if TYPE_CHECKING:
    import torch

CONFIG = "glirel_config.json"
_THRESHOLD = 0.5
_WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
_MOST_ENTITIES = 128
"""In one window: pairs grow by their square."""
_LEAST_PIECES = 16
_MARKERS = ("[REL]", "[SEP]", "[E]", "[/E]")
_building = threading.Lock()


class GlirelOptions(TorchOptions):
    """The library computes in full precision only."""

    dtype: Literal["float32"] = "float32"


@dataclass(frozen=True, slots=True)
class _Known:
    """An entity of the item: its place in the text, and its first and last word."""

    start: int
    end: int
    label: str
    score: float
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Row:
    """One window of one item with at least two entities in it."""

    place: int
    words: tuple[str, ...]
    known: tuple[_Known, ...]
    first: int
    pieces: int
    labels: tuple[str, ...]
    around: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is asked of one item, and its rows."""

    text: str
    options: ExtractOptions
    rows: tuple[_Row, ...]
    around: int
    truncated: bool


_Pairs = list[tuple[_Known, _Known, str, float]]


class GlirelAdapter(TorchAdapter):
    """A GLiREL, built of its library's parts."""

    options = GlirelOptions

    _hard: int = 0

    def weight_bytes(self) -> int:
        """Of safetensors, or of the allowed pickle."""
        return folder_weights(self.spec, self.files, FLOAT_BYTES[self.dtype]).bytes

    def shape(self) -> Shape:
        """The encoder's sizes where they lie beside the checkpoint, else a large one's of the checkpoint's width."""
        config = read_json(self.files / "config.json")
        return read_shape(config or {"hidden_size": int(read_json(self.files / CONFIG).get("hidden_size") or 768)})

    def read(self) -> torch.nn.Module:
        """The library's module with the checkpoint's weights. Raises LoadFailed for what is not served."""
        from safetensors.torch import load_file

        settings = read_json(self.files / CONFIG)
        if not settings:
            raise LoadFailed(f"{self.files} has no {CONFIG}: it is no GLiREL.", LoadReason.CORRUPT)
        if settings.get("span_marker_mode") == "markerv2" or settings.get("add_entity_markers"):
            message = f"{self.spec.id} wants markers around entities, which its library can only train with."
            raise LoadFailed(message, LoadReason.CONFIG)
        pickle = pickled_file(self.spec, self.files)
        if (self.files / "config.json").is_file():
            # The encoder's config and tokenizer lie beside the checkpoint, so no other repository is needed.
            settings = {**settings, "model_name": str(self.files)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said by the library's imports
            from glirel import GLiREL

            with _building, _without_encoder_weights():
                model: Any = GLiREL(Namespace(**{**settings, "device": "cpu"}))
        files = weight_files(self.files)
        state = (
            read_pickle(pickle) if pickle else {name: one for file in files for name, one in load_file(file).items()}
        )
        model.load_state_dict(state, strict=False)
        refuse_random(self.spec, model, weight_names(self.spec, self.files))
        self._hard = _positions(model)
        module: torch.nn.Module = model
        return module

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Every window of every item, in as few passes as the memory that was lent allows."""
        model: Any = self.ready()
        plans = [self._plan(model, place, entry) for place, entry in enumerate(batch.entries)]
        rows = [row for plan in plans if isinstance(plan, _Plan) for row in plan.rows]
        found: list[list[_Pairs | NotFinite]] = [[] for _ in plans]
        if rows:
            most = max(batch.computed, self.spec.max_length)
            for chunk in share([row.pieces for row in rows], most, [row.around for row in rows]):
                part = [rows[index] for index in chunk]
                for row, pairs in zip(part, self._pass(model, part), strict=True):
                    found[row.place].append(pairs)
        return [
            plan if isinstance(plan, EngineError) else _answer(plan, own)
            for plan, own in zip(plans, found, strict=True)
        ]

    def _plan(self, model: Any, place: int, entry: Entry) -> _Plan | EngineError:
        payload = entry.item.payload
        text = text_of(payload)
        if isinstance(text, EngineError):
            return text
        if not isinstance(payload.get("entities"), list):
            message = "The item has no entities to relate: give them as 'entities', each with start, end and label."
            return ItemRejected(message, param="entities")
        options: ExtractOptions = entry.work.options
        labels = tuple(dict.fromkeys(options.relation_labels or options.labels or ()))
        wrong = _wrong_labels(labels)
        if wrong is not None:
            return ItemRejected(wrong, param="options.labels")
        matches = list(_WORD.finditer(text))
        offsets = tuple((match.start(), match.end()) for match in matches)
        known = _known(payload["entities"], offsets)
        if isinstance(known, ItemRejected):
            return known
        if len(known) < 2:
            return _Plan(text, options, (), 0, truncated=False)
        tokenizer = model.token_rep_layer.bert_layer.tokenizer
        encoded = tokenizer([match[0] for match in matches], add_special_tokens=False, verbose=False)["input_ids"]
        asked = tokenizer(list(labels), add_special_tokens=False, verbose=False)["input_ids"]
        around = sum(1 + len(ids) for ids in asked) + 3
        longest = self.spec.max_length
        room = min(longest, self._hard - around if self._hard else longest)
        if room < _LEAST_PIECES or around > longest:
            reads = min(longest, self._hard - _LEAST_PIECES if self._hard else longest)
            message = f"The labels take {around} tokens, and {self.spec.id!r} has room for {reads}; give fewer."
            return ItemRejected(message, param="options.labels")
        most = int(model.base_config.max_len)
        words = Words(offsets, tuple(len(ids) for ids in encoded))
        cut = cut_words(words, len(text), most_words=most, most_pieces=room, overlap=most // 2)
        rows = []
        for window in cut.windows:
            inside = tuple(one for one in known if window.first <= one.first and one.last < window.stop)
            if len(inside) > _MOST_ENTITIES:
                message = f"There are {len(inside)} entities close together; at most {_MOST_ENTITIES} can be related."
                return ItemRejected(message, param="entities")
            if len(inside) > 1:
                texts = tuple(match[0] for match in matches[window.first : window.stop])
                pieces = sum(words.pieces[window.first : window.stop])
                rows.append(_Row(place, texts, inside, window.first, pieces, labels, around))
        return _Plan(text, options, tuple(rows), around, cut.truncated)

    def _pass(self, model: Any, rows: Sequence[_Row]) -> list[_Pairs | NotFinite]:
        """Every pair of entities and every label of each row, with its probability."""
        return self.within_memory(f"a pass of {len(rows)} rows", lambda: _pass(model, rows))


def _pass(model: Any, rows: Sequence[_Row]) -> list[_Pairs | NotFinite]:
    import torch
    from torch.nn.utils.rnn import pad_sequence

    classes = [{label: index for index, label in enumerate(row.labels, start=1)} for row in rows]
    made = []
    for row, own in zip(rows, classes, strict=True):
        spans = [[one.first - row.first, one.last - row.first, one.label, ""] for one in row.known]
        made.append(model.preprocess_spans(list(row.words), spans, own, None))

    def padded(name: str, value: int) -> torch.Tensor:
        return pad_sequence([one[name] for one in made], batch_first=True, padding_value=value)

    with torch.inference_mode():
        scores = model.compute_score(
            {
                "seq_length": torch.tensor([one["seq_length"] for one in made], device=model.device),
                "span_idx": padded("span_idx", 0),
                "span_mask": padded("span_label", -1) != -1,
                "tokens": [one["tokens"] for one in made],
                "rel_label": padded("rel_label", -1),
                "relations_idx": padded("relations_idx", -1),
                "classes_to_id": classes,
            }
        )[0]
        likely = scores.float().sigmoid().cpu()
    found: list[_Pairs | NotFinite] = []
    for index, (row, one) in enumerate(zip(rows, made, strict=True)):
        pairs = one["relations_idx"].tolist()
        own = likely[index, : len(pairs), : len(row.labels)]
        if own.isnan().any():
            found.append(NotFinite("The model gave numbers that are none for this text."))
            continue
        by_words = {(known.first - row.first, known.last - row.first): known for known in row.known}
        found.append(
            [
                (by_words[tuple(head)], by_words[tuple(tail)], label, score)
                for (head, tail), line in zip(pairs, own.tolist(), strict=True)
                for label, score in zip(row.labels, line, strict=True)
            ]
        )
    return found


def _answer(plan: _Plan, found: Sequence[_Pairs | NotFinite]) -> Outcome:
    """The relations above the threshold, the best first; of a pair that several windows have, the highest scores."""
    best: dict[tuple[_Known, _Known, str], float] = {}
    for pairs in found:
        if isinstance(pairs, NotFinite):
            return pairs
        for head, tail, label, score in pairs:
            best[head, tail, label] = max(score, best.get((head, tail, label), score))
    options = plan.options
    given = options.threshold if options.relation_threshold is None else options.relation_threshold
    threshold = _THRESHOLD if given is None else given
    ranked = sorted(((score, key) for key, score in best.items() if score > threshold), key=lambda pair: -pair[0])
    kept: dict[tuple[_Known, _Known], int] = {}
    relations = []
    for score, (head, tail, label) in ranked:
        count = kept[head, tail] = kept.get((head, tail), 0) + 1
        if options.top_k is None or count <= options.top_k:
            relations.append(relation(_entity(plan.text, head), _entity(plan.text, tail), label, score))
    tokens = sum(row.pieces + plan.around for row in plan.rows)
    return Output({"relations": relations}, tokens=tokens, truncated=plan.truncated)


def _entity(text: str, known: _Known) -> dict[str, Any]:
    return entity(text, known.label, known.score, known.start, known.end)


def _known(entities: Sequence[Mapping[str, Any]], offsets: Sequence[tuple[int, int]]) -> list[_Known] | ItemRejected:
    """The entities by the words that they touch, each place once; or which one has no word."""
    found: dict[tuple[int, int], _Known] = {}
    for index, one in enumerate(entities):
        touched = [i for i, (start, end) in enumerate(offsets) if start < one["end"] and end > one["start"]]
        if not touched:
            return ItemRejected("An entity has no word in it.", param=f"entities[{index}]")
        key = (touched[0], touched[-1])
        found.setdefault(key, _Known(one["start"], one["end"], one["label"], one.get("score", 1.0), *key))
    return list(found.values())


def _wrong_labels(labels: Sequence[str]) -> str | None:
    if not labels:
        return "There are no relations to look for: give them as 'labels'."
    for label in labels:
        if any(marker in label for marker in _MARKERS):
            return f"The label {label[:100]!r} holds a marker of the model's own."
    return None


def _positions(model: Any) -> int:
    """How many tokens the encoder can read at all; 0 where there is no end to it."""
    rows = [
        int(part.num_embeddings) - (0 if part.padding_idx is None else part.padding_idx + 1)
        for name, part in model.token_rep_layer.bert_layer.model.named_modules()
        if name.endswith("position_embeddings") and hasattr(part, "num_embeddings")
    ]
    return min(rows, default=0)


@contextmanager
def _without_encoder_weights() -> Iterator[None]:
    """Have the library make its encoder of a config alone: the checkpoint has all of its weights."""
    from glirel.modules import transformer_embeddings as place
    from transformers import AutoConfig, AutoModel

    class Empty:
        @staticmethod
        def from_pretrained(name: str) -> Any:
            return AutoModel.from_config(AutoConfig.from_pretrained(name))

    original = place.AutoModel
    place.AutoModel = Empty
    try:
        yield
    finally:
        place.AutoModel = original
