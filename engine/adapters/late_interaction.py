"""Late interaction (ColBERT kinds): a vector for each token, and scores by the best match of each of a query's vectors.

Read by sentence-transformers, in its own layout, in PyLate's and in that of the first ColBERT. Queries and documents
differ as the model's files say: a marker token, how long they are, tokens that fill a query up to a fixed length, and
punctuation that documents leave out. The vectors are as the model makes them; most models make them of norm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from catalog.modelfolder import model_root, module_folders, read_json
from catalog.options import EncodeOptions, ScoreOptions, side_prompt
from catalog.schema import EncodeFacts, Spec
from catalog.terms import Verb
from catalog.tokenizer import PlainTokenizer, Tokens
from engine.adapters.base import LoadOptions
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite, WrongCount
from engine.library_encoder import LibraryEncoderAdapter
from engine.maxsim import maxsim
from engine.multivectors import finish_multivector, read_multivector
from engine.packing import Ids, Layout, pad
from engine.readings import text_of
from engine.text_encoder import EncoderOptions, Row, layout_of, read_row, said_of_query, tokenizer_of
from engine.types import Batch, Outcome, Output

Matrix = NDArray[np.float32]
Payload = Mapping[str, Any]


class LateInteractionOptions(EncoderOptions):
    """`query_length` and `document_length` stand in place of the lengths in the model's files.

    `projection: none` takes any encoder of texts as it is: the states of its tokens, at norm 1, without a projection
    that was trained for this.
    """

    query_length: int | None = Field(default=None, ge=4)
    document_length: int | None = Field(default=None, ge=4)
    projection: Literal["own", "none"] = "own"


@dataclass(frozen=True, slots=True)
class _Side:
    """How texts of one side go in: `marker` and `lead` come before them, and `longest` bounds them.

    A query is filled up to `fill` tokens with `filler`, of which attention takes no notice unless `attend`.
    """

    task: str
    marker: str
    ids: tuple[int, ...]
    lead: str
    longest: int
    fill: int = 0
    filler: int = 0
    attend: bool = False


class LateInteractionAdapter(LibraryEncoderAdapter):
    """One late-interaction model on one device."""

    options = LateInteractionOptions
    foreign = ("pylate.models.Dense.Dense",)

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, LateInteractionOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        if spec.tasks.encode is None or spec.tasks.encode.outputs != ("multivector",):
            message = f"{spec.id} needs 'tasks.encode' with 'outputs: [multivector]' in its YAML to be of this family."
            raise LoadFailed(message, LoadReason.CONFIG)
        self._facts: EncodeFacts = spec.tasks.encode
        self._width = spec.tasks.encode.token_dims or 0
        self._choice = options
        self.forget()

    def forget(self) -> None:
        """Drop the tokenizer and what is known of the two sides."""
        self._tokenizer: PlainTokenizer | None = None
        self._layout = Layout(type_ids=False)
        self._keep_end = False
        self._sides: dict[bool, _Side] = {}
        self._mean = False

    def build(self, source: str, **settings: Any) -> Any:
        """The library's MultiVectorEncoder. Raises LoadFailed where it would make up a projection."""
        from sentence_transformers import MultiVectorEncoder

        if self._choice.projection == "none":
            return MultiVectorEncoder(modules=_unprojected(model_root(self.files), **settings), device="cpu")
        library = read_json(self.files / "config_sentence_transformers.json")
        named = (read_json(self.files / "config.json").get("architectures") or [], library.get("model_type"))
        dense = any(kind.endswith(".Dense") for kind, _ in module_folders(self.files))
        if not dense and "HF_ColBERT" not in named[0] and named[1] not in ("MultiVectorEncoder", "ColBERT"):
            message = f"{self.spec.id} has no projection of its own for late interaction; see 'projection: none'."
            raise LoadFailed(message, LoadReason.CONFIG)
        return MultiVectorEncoder(source, **settings)

    def understand(self, model: Any) -> None:
        """Find out how queries and documents go in."""
        first = model[0]
        self._tokenizer = tokenizer_of(self.spec.id, first)
        tokenizer = first.tokenizer
        self._layout, self._keep_end = layout_of(tokenizer), tokenizer.truncation_side == "left"
        self._mean = model.similarity_fn_name == "meanmaxsim"
        self.check_length(first.model)
        prompts = {**{n: t for n, t in (model.prompts or {}).items() if t is not None}, **self._facts.prompts}
        lengths = {
            True: self._choice.query_length or first.query_length,
            False: self._choice.document_length or first.document_length,
        }
        for is_query, length in lengths.items():
            marker, ids, lead = _marked(tokenizer, side_prompt(prompts, is_query=is_query) or "")
            longest = min(self.spec.max_length, length or self.spec.max_length)
            side = _Side("query" if is_query else "document", marker, ids, lead, longest)
            self._sides[is_query] = self._filled(side, first, tokenizer) if is_query else side

    def _filled(self, side: _Side, first: Any, tokenizer: Any) -> _Side:
        expansion = first.query_expansion
        if expansion is None:
            return side
        token = expansion["token"]
        filler = tokenizer.mask_token_id if token is None else tokenizer.convert_tokens_to_ids(token)
        fixed = expansion["strategy"] == "fixed"
        fill = (self._choice.query_length if fixed else None) or expansion["length"]
        if fill > self.spec.max_length:
            message = f"{self.spec.id} fills queries to {fill} tokens; its YAML says it reads {self.spec.max_length}."
            raise LoadFailed(message, LoadReason.CONFIG)
        return replace(
            side,
            longest=fill if fixed else max(fill, side.longest),
            fill=fill,
            filler=tokenizer.eos_token_id if filler is None else filler,
            attend=expansion["attend"],
        )

    def warm_up(self) -> None:
        """One word as a document; its vectors are as wide as the YAML says."""
        side = self._sides[False]
        tokens = self._tokens(side, [side.lead + "word"])[0]
        found = self._embed(side, [Row(0, tokens, len(tokens.ids))])[0].shape[1]
        if found != self._width:
            message = f"{self.spec.id} gives vectors of {found} dimensions; its YAML says {self._width}."
            raise LoadFailed(message, LoadReason.CONFIG)

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Vectors of texts, those of each side in passes of their own; or scores of pairs, each text computed once."""
        self.ready()
        return self._score(batch) if batch.verb is Verb.SCORE else self._encode(batch)

    def _encode(self, batch: Batch) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        for is_query in (True, False):
            asked = {
                place: (entry.item.payload, self._lead(entry.work.options, is_query), entry.work.options.truncate)
                for place, entry in enumerate(batch.entries)
                if entry.work.options.is_query is is_query
            }
            vectors = self._vectors(batch, self._sides[is_query], asked)
            for place, found in vectors.items():
                if isinstance(found, EngineError):
                    outcomes[place] = found
                    continue
                row, matrix = found
                value = finish_multivector(matrix, batch.entries[place].work.options.output_dtype)
                fields = {"multivector": value}
                outcomes[place] = Output(fields, row.counted, row.truncated) if isinstance(value, dict) else value
        return [outcome or WrongCount() for outcome in outcomes]

    def _lead(self, options: EncodeOptions | ScoreOptions, is_query: bool) -> str:
        """The text between the side's marker and the item's own: what the caller chose, else the model's."""
        side = self._sides[is_query]
        if isinstance(options, EncodeOptions) and options.prompt is not None:
            return self._facts.prompts[options.prompt].removeprefix(side.marker)
        return side.lead if options.instruction is None else options.instruction

    def _score(self, batch: Batch) -> list[Outcome]:
        pairs: dict[int, dict[bool, Any]] = {place: {} for place in range(len(batch.entries))}
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        sent: dict[bytes, Matrix] = {}
        for is_query in (True, False):
            asked: dict[int, tuple[Payload, str, bool]] = {}
            for place, entry in enumerate(batch.entries):
                options: ScoreOptions = entry.work.options
                payload = entry.item.payload.get("query") or {} if is_query else entry.item.payload
                given = read_multivector(payload, self._width)
                if given is None:
                    lead = self._lead(options, is_query) if is_query else self._sides[False].lead
                    asked[place] = (payload, lead, options.truncate)
                elif isinstance(given, ItemRejected):
                    outcomes[place] = said_of_query(given) if is_query else given
                else:
                    # The items of a request share its query, so it meets all their vectors at once.
                    pairs[place][is_query] = (None, sent.setdefault(given.tobytes(), given) if is_query else given)
            for place, found in self._vectors(batch, self._sides[is_query], asked).items():
                if isinstance(found, EngineError):
                    outcomes[place] = outcomes[place] or (said_of_query(found) if is_query else found)
                else:
                    pairs[place][is_query] = found
        by_query: dict[int, list[int]] = {}
        for place, pair in pairs.items():
            if outcomes[place] is None:
                by_query.setdefault(id(pair[True][1]), []).append(place)
        for places in by_query.values():
            query: Matrix = pairs[places[0]][True][1]
            scores = maxsim(query, [pairs[place][False][1] for place in places])
            for place, score in zip(places, scores, strict=True):
                outcomes[place] = self._scored(score / len(query) if self._mean else score, pairs[place])
        return [outcome or WrongCount() for outcome in outcomes]

    def _scored(self, score: float, pair: Mapping[bool, tuple[Row | None, Matrix]]) -> Outcome:
        if not np.isfinite(score):
            return NotFinite()
        rows = [row for row, _ in pair.values() if row is not None]
        return Output({"score": score}, sum(row.counted for row in rows), any(row.truncated for row in rows))

    def _vectors(
        self, batch: Batch, side: _Side, asked: Mapping[int, tuple[Payload, str, bool]]
    ) -> dict[int, tuple[Row, Matrix] | EngineError]:
        """The vectors of each place's text: (payload, what comes before it, whether it may be cut).

        Equal texts are computed once, and have the one array.
        """
        found: dict[int, tuple[Row, Matrix] | EngineError] = {}
        texts: dict[int, str] = {}
        for place, (payload, lead, _) in asked.items():
            text = text_of(payload)
            if isinstance(text, ItemRejected):
                found[place] = text
            else:
                texts[place] = lead + text
        rows: dict[int, Row] = {}
        for place, tokens in zip(texts, self._tokens(side, list(texts.values())), strict=True):
            row = read_row(place, tokens, side.longest, truncate=asked[place][2], keep_end=self._keep_end)
            if isinstance(row, Row):
                rows[place] = row
            else:
                found[place] = row
        found.update(self.once(batch, rows, lambda some: self._embed(side, some)))
        return found

    def _tokens(self, side: _Side, texts: Sequence[str]) -> list[Tokens]:
        """The texts with the side's marker where it was in training: before all else but the first control tokens."""
        if self._tokenizer is None:
            raise RuntimeError("run before load or restore")
        marker = list(side.ids)
        return [
            Tokens(
                [*one.ids[: one.first], *marker, *one.ids[one.first :]],
                [*one.type_ids[: one.first], *([0] * len(marker)), *one.type_ids[one.first :]],
                one.first + len(marker),
                one.last,
            )
            for one in (self._tokenizer.encode(texts) if texts else [])
        ]

    def _embed(self, side: _Side, rows: Sequence[Row]) -> list[Matrix]:
        import torch

        arrays = pad([row.tokens for row in rows], self._layout)
        if side.fill:
            arrays = filled(arrays, side.fill, side.filler, attend=side.attend, left=self._layout.pad_left)
        model = self.module
        if model is None:
            raise RuntimeError("run before load or restore")
        with torch.inference_mode(), self.lock:
            features = model(self.on_device(arrays), task=side.task)
            values = features["token_embeddings"].float().cpu().numpy()
            kept = features["attention_mask"].bool().cpu().numpy()
        return [vectors[mask] for vectors, mask in zip(values, kept, strict=True)]


def filled(arrays: dict[str, Ids], length: int, filler: int, *, attend: bool, left: bool) -> dict[str, Ids]:
    """A padded batch of queries with padding up to `length` tokens turned into filler, which is scored."""
    missing = max(0, length - arrays["input_ids"].shape[1])
    wide: dict[str, Ids] = {
        name: np.pad(array, ((0, 0), (missing, 0) if left else (0, missing))) for name, array in arrays.items()
    }
    mask = wide["attention_mask"]
    places = (mask == 0) & (np.arange(mask.shape[1]) < length)
    wide["input_ids"] = np.where(places, filler, wide["input_ids"])
    if attend:
        wide["attention_mask"] = np.where(places, 1, mask)
    return wide | {"query_expansion_positions": places.astype(np.int64)}


def _marked(tokenizer: Any, prompt: str) -> tuple[str, tuple[int, ...], str]:
    """The control token that a prompt begins with, its id, and the rest; nothing where it is plain text."""
    known = tokenizer.added_tokens_encoder
    for marker in (prompt, *prompt.split(maxsplit=1)[:1]):
        if marker in known and tokenizer.tokenize(marker) == [marker]:
            return marker, (known[marker],), prompt[len(marker) :]
    return "", (), prompt


def _unprojected(root: Path, *, model_kwargs: dict[str, Any], **_: Any) -> list[Any]:
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    local = {"local_files_only": True, "trust_remote_code": False}
    first = Transformer(
        str(root), model_kwargs=local | model_kwargs, processor_kwargs=dict(local), config_kwargs=dict(local)
    )
    return [first, MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
