"""Learned sparse encoders (SPLADE kinds) in the layouts of sentence-transformers: a weight for each vocabulary entry.

A model may have a way of its own for queries: inference-free ones look a query's tokens up in a table of weights, and
only documents pass through the transformer. `is_query` chooses the way, and the prompt with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from catalog.modelfolder import model_root, read_json
from catalog.options import EncodeOptions, side_prompt
from catalog.schema import EncodeFacts, Spec
from catalog.tokenizer import PlainTokenizer, Tokens
from engine.adapters.base import LoadOptions
from engine.errors import ItemRejected, LoadFailed, LoadReason, WrongCount
from engine.library_encoder import LibraryEncoderAdapter
from engine.packing import Layout, pad
from engine.readings import text_of
from engine.sparse import finish_sparse
from engine.text_encoder import Row, layout_of, read_row, tokenizer_of
from engine.torch_adapter import FLOAT_BYTES
from engine.types import Batch, Footprint, Outcome, Output

if TYPE_CHECKING:
    import torch

Features = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Way:
    """How texts of one side become vectors: modules, and what the first of them wants. `bare`: no control tokens."""

    steps: tuple[Callable[[Features], Features], ...]
    tokenizer: PlainTokenizer
    layout: Layout
    keep_end: bool
    bare: bool = False


class SparseEncoderAdapter(LibraryEncoderAdapter):
    """One sparse encoder on one device."""

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if spec.tasks.encode is None or spec.tasks.encode.outputs != ("sparse",):
            message = f"{spec.id} needs 'tasks.encode' with 'outputs: [sparse]' in its YAML to be of this family."
            raise LoadFailed(message, LoadReason.CONFIG)
        self._facts: EncodeFacts = spec.tasks.encode
        self.forget()

    def forget(self) -> None:
        """Drop what leads to the module's parts."""
        self._queries: _Way | None = None
        self._documents: _Way | None = None
        self._prompts: Mapping[str, str] = {}
        self._prefix = ""
        self._most: int | None = None

    def footprint(self) -> Footprint:
        """As for other encoders; the widest point is a token's logits over the vocabulary, where a model makes such."""
        found = super().footprint()
        wide = int(read_json(model_root(self.files) / "config.json").get("vocab_size") or 0)
        return Footprint(found.weights, found.per_token + 2 * FLOAT_BYTES[self.dtype] * wide)

    def build(self, source: str, **settings: Any) -> Any:
        """The library's SparseEncoder."""
        from sentence_transformers import SparseEncoder

        return SparseEncoder(source, **settings)

    def understand(self, model: Any) -> None:
        """Find the ways of queries and documents, the prompts and the library's own bound on active dimensions."""
        from sentence_transformers.base.modules import Router

        modules = list(model)
        if isinstance(modules[0], Router):
            routes: Any = modules[0].sub_modules
            if set(routes) != {"query", "document"}:
                message = f"{self.spec.id} leads to {', '.join(routes)}; this family knows query and document."
                raise LoadFailed(message, LoadReason.CONFIG)
            sides = [[*routes[side], *modules[1:]] for side in ("query", "document")]
        else:
            sides = [modules, modules]
        self._most = model.max_active_dims
        self._queries, self._documents = (self._way(side) for side in sides)
        self._prompts = {name: text for name, text in (model.prompts or {}).items() if text}
        self._prefix = (model.prompts or {}).get(model.default_prompt_name or "") or ""

    def _way(self, modules: Sequence[Any]) -> _Way:
        from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

        first = modules[0]
        if hasattr(first, "model"):
            self.check_length(first.model)
        return _Way(
            steps=tuple(_step(module, self._most) for module in modules),
            tokenizer=tokenizer_of(self.spec.id, first),
            layout=layout_of(first.tokenizer),
            keep_end=first.tokenizer.truncation_side == "left",
            bare=isinstance(first, SparseStaticEmbedding),
        )

    def warm_up(self) -> None:
        """One word on the way of documents; its vector is as wide as the YAML says."""
        way = self._documents
        if way is None:
            raise RuntimeError("warm-up before load")
        tokens = way.tokenizer.encode(["word"])[0]
        found = self._encode(way, [Row(0, tokens, len(tokens.ids))]).shape[1]
        if found != self._facts.sparse_dims:
            message = f"{self.spec.id} gives {found} dimensions; its YAML says {self._facts.sparse_dims}."
            raise LoadFailed(message, LoadReason.CONFIG)

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """Vectors of the batch's texts, those of each side in passes of their own."""
        self.ready()
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        for way, is_query in ((self._queries, True), (self._documents, False)):
            if way is None:
                raise RuntimeError("run before load or restore")
            places = [i for i, e in enumerate(batch.entries) if e.work.options.is_query is is_query]
            rows = self._rows(way, batch, places, outcomes)
            for some in self.passes(batch, rows):
                matrix = self.within_memory(f"a pass of {len(some)} texts", lambda w=way, s=some: self._encode(w, s))  # type: ignore[misc]
                for row, weights in zip(some, matrix, strict=True):
                    outcomes[row.place] = _output(row, weights, batch.entries[row.place].work.options)
        return [outcome or WrongCount() for outcome in outcomes]

    def _rows(self, way: _Way, batch: Batch, places: Sequence[int], outcomes: list[Outcome | None]) -> list[Row]:
        texts: dict[int, str] = {}
        for place in places:
            text = text_of(batch.entries[place].item.payload)
            if isinstance(text, ItemRejected):
                outcomes[place] = text
            else:
                texts[place] = self._prefix_of(batch.entries[place].work.options) + text
        rows: list[Row] = []
        read = way.tokenizer.encode(list(texts.values())) if texts else []
        for place, tokens in zip(texts, read, strict=True):
            own = _bare(tokens) if way.bare else tokens
            truncate = batch.entries[place].work.options.truncate
            row = read_row(place, own, self.spec.max_length, truncate=truncate, keep_end=way.keep_end)
            if isinstance(row, Row):
                rows.append(row)
            else:
                outcomes[place] = row
        return rows

    def _prefix_of(self, options: EncodeOptions) -> str:
        if options.instruction is not None or options.prompt is not None:
            return options.prefix(self._facts)
        side = side_prompt({**self._prompts, **self._facts.prompts}, is_query=options.is_query)
        return side or ("" if options.is_query else self._prefix)

    def _encode(self, way: _Way, rows: Sequence[Row]) -> NDArray[np.float32]:
        import torch

        features = self.on_device(pad([row.tokens for row in rows], way.layout))
        with torch.inference_mode(), self.lock:
            for step in way.steps:
                features = step(features)
            found = features["sentence_embedding"]
            if self._most is not None:
                from sentence_transformers.util import select_max_active_dims

                found = select_max_active_dims(found, max_active_dims=self._most)
            return np.asarray(found.float().cpu().numpy(), dtype=np.float32)


def _output(row: Row, weights: NDArray[np.float32], options: EncodeOptions) -> Outcome:
    indices = np.flatnonzero(weights)
    found = finish_sparse(indices, weights[indices], len(weights), options.output_dtype)
    if isinstance(found, dict):
        return Output({"sparse": found}, tokens=row.counted, truncated=row.truncated)
    return found


def _bare(tokens: Tokens) -> Tokens:
    """The text's own tokens, without the control tokens around them."""
    stop = len(tokens.ids) - tokens.last
    return Tokens(tokens.ids[tokens.first : stop], tokens.type_ids[tokens.first : stop], 0, 0)


def _step(module: Any, most: int | None) -> Callable[[Features], Features]:
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    if isinstance(module, SpladePooling) and module.pooling_strategy == "max":
        twice = module.activation_function == "log1p_relu"
        return lambda features: (
            features
            | {"sentence_embedding": pooled(features["token_embeddings"], features["attention_mask"], twice=twice)}
        )
    if most is not None and "max_active_dims" in getattr(module, "forward_kwargs", ()):
        return lambda features: module(features, max_active_dims=most)
    found: Callable[[Features], Features] = module
    return found


def pooled(logits: torch.Tensor, mask: torch.Tensor, *, twice: bool = False) -> torch.Tensor:
    """The highest logit of each vocabulary entry over a text's tokens, as log(1 + max(0, x)); `twice` does it again.

    Shapes (texts, tokens, entries) and (texts, tokens) in, (texts, entries) out. As both functions rise, the highest
    value comes first and they are applied to it alone: that spares passes over the largest array there is. Overwrites
    the logits of padding.
    """
    best = logits.masked_fill_(~mask.bool()[:, :, None], 0.0).amax(dim=1).relu_().log1p_()
    return best.log1p_() if twice else best
