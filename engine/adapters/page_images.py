"""Pages as images, by late interaction: ColPali, ColQwen2 and their kin, as `transformers` has them.

`encode` gives a vector for each token: of the page for an item with an image, of a query for one with a text. `score`
compares a query with pages, or with vectors of pages that a caller kept, by the best match of each of the query's
vectors. A page has the vectors of its patches and of the few words that the model reads with each page. Queries end
with tokens that stand for nothing, which the model fills with meaning.

Pages of one size go in one pass, and all queries in another; a query that several items share is computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.modelfolder import read_json
from catalog.options import EncodeOptions, ScoreOptions
from catalog.schema import EncodeFacts, Spec
from catalog.terms import Verb
from engine.adapters.base import LoadOptions
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite, TextTooLong, WrongCount
from engine.images import only_image
from engine.maxsim import Matrix, maxsim
from engine.multivectors import finish_multivector, read_multivector
from engine.readings import beside_image, text_of
from engine.text_encoder import said_of_query
from engine.types import Batch, Outcome, Output
from engine.vision import VisionAdapter, plain_tokenizer, read_image_processor, read_tokenizer

if TYPE_CHECKING:
    import torch

_KINDS = {"colpali": "ColPali", "colqwen2": "ColQwen2"}
"""By the config's `model_type`: how the library's classes begin."""

_AUGMENTATION = 10
"""Tokens at the end of a query that stand for nothing."""

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Row:
    """A page or a query as the model reads it: arrays with a first axis of one, and how long it was before any cut."""

    arrays: Mapping[str, torch.Tensor]
    counted: int
    truncated: bool = False


class PageImagesAdapter(VisionAdapter):
    """One such model on one device."""

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        facts = spec.tasks.encode
        if facts is None or facts.outputs != ("multivector",) or facts.token_dims is None:
            message = f"{spec.id} needs 'tasks.encode' with 'outputs: [multivector]' in its YAML to be of this family."
            raise LoadFailed(message, LoadReason.CONFIG)
        self._facts: EncodeFacts = facts
        self._width = facts.token_dims

    def read_parts(self) -> torch.nn.Module:
        """The model, and the library's own processor of pages and queries."""
        import transformers

        model_type = str(read_json(self.files / "config.json").get("model_type"))
        kind = _KINDS.get(model_type)
        if kind is None:
            message = f"{self.spec.id} is a {model_type!r}; this family has {' and '.join(_KINDS)}."
            raise LoadFailed(message, LoadReason.CONFIG)
        module = self.read_model(f"{kind}ForRetrieval")
        named = read_json(self.files / "processor_config.json")
        prompts = {name: named[name] for name in ("visual_prompt_prefix", "query_prefix") if named.get(name)}
        tokenizer = read_tokenizer(self.files)
        self.processor = getattr(transformers, f"{kind}Processor")(
            read_image_processor(self.files), tokenizer, **prompts
        )
        self.tokenizer = plain_tokenizer(tokenizer)
        self._pad_id = int(tokenizer.pad_token_id)
        self._head = [int(tokenizer.bos_token_id)] if kind == "ColPali" else []
        self._tail = [self._pad_id] * _AUGMENTATION + self._plain("\n")
        return module

    def warm_up(self) -> None:
        """One word as a query: it reads as the library's own processor has it, and gives vectors of the right width."""
        library = self.processor.process_queries(["word"])
        self._types = "token_type_ids" in library
        row = self._query("word", self.processor.query_prefix, truncate=True)
        if isinstance(row, EngineError) or row.arrays["input_ids"].tolist() != library["input_ids"].tolist():
            message = f"{self.spec.id} reads queries in a way that this family does not know."
            raise LoadFailed(message, LoadReason.CONFIG)
        found = self._pass([row])[0].shape[1]
        if found != self._width:
            message = f"{self.spec.id} gives vectors of {found} dimensions; its YAML says {self._width}."
            raise LoadFailed(message, LoadReason.CONFIG)

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """The vectors of pages and queries, or the scores of pages."""
        self.ready()
        return self._score(batch) if batch.verb is Verb.SCORE else self._encode(batch)

    def _encode(self, batch: Batch) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        rows: dict[Hashable, _Row] = {}
        for place, entry in enumerate(batch.entries):
            payload, options = entry.item.payload, entry.work.options
            row: _Row | EngineError
            if "images" not in payload:
                row = self._asked(payload, options)
            elif "text" in payload:
                row = ItemRejected("Send a text or an image: each has vectors of its own.", param="images")
            else:
                row = beside_image(entry.work.options) or self._page(payload)
            if isinstance(row, EngineError):
                outcomes[place] = row
            else:
                rows[place] = row
        vectors = self._vectors(rows)
        for place, entry in enumerate(batch.entries):
            if place in rows:
                value = finish_multivector(vectors[place], entry.work.options.output_dtype)
                if isinstance(value, dict):
                    outcomes[place] = _output({"multivector": value}, [rows[place]])
                else:
                    outcomes[place] = value
        return [outcome or WrongCount() for outcome in outcomes]

    def _score(self, batch: Batch) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        rows: dict[Hashable, _Row] = {}
        sent: dict[Hashable, Matrix] = {}
        queries: dict[Hashable, list[int]] = {}
        for place, entry in enumerate(batch.entries):
            payload, options = entry.item.payload, entry.work.options
            key = self._query_side(payload.get("query") or {}, options, rows, sent)
            error = key if isinstance(key, EngineError) else self._page_side(place, payload, rows, sent)
            if isinstance(error, EngineError):
                outcomes[place] = error
            else:
                queries.setdefault(key, []).append(place)
        vectors = {**sent, **self._vectors(rows)}
        for key, places in queries.items():
            scores = maxsim(vectors[key], [vectors[place] for place in places])
            for place, score in zip(places, scores, strict=True):
                used = [rows[part] for part in (key, place) if part in rows]
                outcomes[place] = _output({"score": score}, used) if np.isfinite(score) else NotFinite()
        return [outcome or WrongCount() for outcome in outcomes]

    def _query_side(
        self, query: Payload, options: ScoreOptions, rows: dict[Hashable, _Row], sent: dict[Hashable, Matrix]
    ) -> Hashable | EngineError:
        """The name under which a query's vectors will be found, in common for all items that ask it."""
        given = read_multivector(query, self._width)
        if isinstance(given, ItemRejected):
            return said_of_query(given)
        if given is not None:
            name: Hashable = ("vectors", given.tobytes())
            sent[name] = given
            return name
        row = self._asked(query, options)
        if isinstance(row, EngineError):
            return said_of_query(row)
        name = ("query", tuple(row.arrays["input_ids"][0].tolist()))
        rows[name] = row
        return name

    def _page_side(
        self, place: int, payload: Payload, rows: dict[Hashable, _Row], sent: dict[Hashable, Matrix]
    ) -> EngineError | None:
        given = read_multivector(payload, self._width)
        if isinstance(given, ItemRejected):
            return given
        if given is not None:
            sent[place] = given
            return None
        if "images" not in payload:
            return ItemRejected("Send the image of a page, or its vectors as a multivector.", param="images")
        row = self._page(payload)
        if isinstance(row, EngineError):
            return row
        rows[place] = row
        return None

    def _page(self, payload: Payload) -> _Row | EngineError:
        image = only_image(payload)
        if isinstance(image, ItemRejected):
            return image
        made = self.processor.process_images(images=[image])
        arrays = {name: made[name] for name in made if name != "labels"}
        return _Row(arrays, int(arrays["input_ids"].shape[1]))

    def _asked(self, payload: Payload, options: EncodeOptions | ScoreOptions) -> _Row | EngineError:
        text = text_of(payload)
        if isinstance(text, ItemRejected):
            return text
        prefix = self.processor.query_prefix
        if isinstance(options, EncodeOptions) and options.prompt is not None:
            prefix = self._facts.prompts[options.prompt]
        elif options.instruction is not None:
            prefix = options.instruction
        return self._query(text, prefix, truncate=options.truncate)

    def _query(self, text: str, prefix: str, *, truncate: bool) -> _Row | TextTooLong:
        import torch

        body = self._plain(prefix + text)
        around = len(self._head) + len(self._tail)
        count, longest = around + len(body), self.spec.max_length
        if count > longest and not truncate:
            return TextTooLong.counted(count, longest)
        ids = torch.tensor([[*self._head, *body[: longest - around], *self._tail]])
        arrays = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self._types:
            arrays["token_type_ids"] = torch.zeros_like(ids)
        return _Row(arrays, count, truncated=count > longest)

    def _plain(self, text: str) -> list[int]:
        tokens = self.tokenizer.encode([text])[0]
        ids: list[int] = tokens.ids
        return ids[tokens.first : len(ids) - tokens.last]

    def _vectors(self, rows: Mapping[Hashable, _Row]) -> dict[Hashable, Matrix]:
        """The vectors of each row: queries in one pass, pages in one for each shape of their arrays."""
        groups: dict[Hashable, list[Hashable]] = {}
        for name, row in rows.items():
            page = "pixel_values" in row.arrays
            shape = tuple((part, tuple(values.shape)) for part, values in row.arrays.items()) if page else None
            groups.setdefault(shape, []).append(name)
        found: dict[Hashable, Matrix] = {}
        for alike, names in groups.items():
            own = [rows[name] for name in names]
            doing = f"a pass of {len(own)} {'queries' if alike is None else 'pages'}"
            found.update(zip(names, self.within_memory(doing, lambda own=own: self._pass(own)), strict=True))  # type: ignore[misc]
        return found

    def _pass(self, rows: Sequence[_Row]) -> list[Matrix]:
        """One forward pass. Shorter queries are padded at their ends; pages are of one shape."""
        import torch

        width = max(row.arrays["input_ids"].shape[1] for row in rows)
        fill = {"input_ids": self._pad_id}
        sent = {}
        for name in rows[0].arrays:
            values = [row.arrays[name] for row in rows]
            if "pixel_values" not in rows[0].arrays:
                pad = torch.nn.functional.pad
                values = [pad(one, (0, width - one.shape[1]), value=fill.get(name, 0)) for one in values]
            sent[name] = self.sent(torch.cat(values))
        with torch.inference_mode():
            made = self.ready()(**sent).embeddings.float().cpu().numpy()
        kept = [row.arrays["attention_mask"][0].bool().numpy() for row in rows]
        return [vectors[: len(mask)][mask] for vectors, mask in zip(made, kept, strict=True)]


def _output(fields: dict[str, Any], rows: Sequence[_Row]) -> Output:
    images = sum("pixel_values" in row.arrays for row in rows)
    return Output(
        fields,
        tokens=sum(row.counted for row in rows),
        truncated=any(row.truncated for row in rows),
        usage={"images": images} if images else {},
    )
