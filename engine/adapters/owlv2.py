"""Objects by labels: OWLv2 and OWL-ViT, as `transformers` has them.

Each label is a text of its own, read as it is sent (`a photo of a cat` finds more than `cat`); its vector is compared
with that of every place in the image. All images of a batch go in one pass, and all labels that any of them asks for in
another, each once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.options import ExtractOptions
from engine.detection import Found, Wanted, best, corners, told, wanted
from engine.errors import EngineError, ItemRejected, NotFinite, WrongCount
from engine.images import only_image, within
from engine.types import Batch, Entry, Outcome
from engine.vision import VisionAdapter

if TYPE_CHECKING:
    import torch

    from catalog.tokenizer import Tokens

THRESHOLD = 0.1
"""Of a box, as the library has it: scores of these models are low."""

LONGEST_SIDE = 4096
"""Pixels. OWLv2 pads an image to a square before it scales it down, so a larger one is scaled down first."""

_KINDS = {"owlvit": "OwlViTForObjectDetection", "owlv2": "Owlv2ForObjectDetection"}


@dataclass(frozen=True, slots=True)
class _Row:
    """One readable item: its place, what is asked, its size as displayed, what the library makes of the image."""

    place: int
    want: Wanted
    size: tuple[int, int]
    pixels: torch.Tensor


class Owlv2Adapter(VisionAdapter):
    """One such model on one device."""

    def read_parts(self) -> torch.nn.Module:
        """The model, its processor and its tokenizer."""
        module, tokenizer = self.read_kind(_KINDS)
        self._pad_id = int(tokenizer.pad_token_id or 0)
        self._longest = min(int(module.config.text_config.max_position_embeddings), self.spec.max_length)
        self._square = module.config.model_type != "owlvit"
        return module  # type: ignore[no-any-return]  # the library has no types there

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """The objects in each image."""
        self.ready()
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        rows: list[_Row] = []
        texts: dict[str, Tokens] = {}
        for place, entry in enumerate(batch.entries):
            row = self._read_item(place, entry, texts)
            if isinstance(row, _Row):
                rows.append(row)
            else:
                outcomes[place] = row
        if rows:
            asked = sorted({label for row in rows for label in row.want.labels})
            doing = f"a pass of {len(rows)} images and {len(asked)} labels"
            for row, found in zip(
                rows, self.within_memory(doing, lambda: self._detect(rows, asked, texts)), strict=True
            ):
                if isinstance(found, NotFinite):
                    outcomes[row.place] = found
                else:
                    tokens = self.spec.image_length + sum(len(texts[label].ids) for label in row.want.labels)
                    outcomes[row.place] = told(found, row.want, row.size, tokens)
        return [outcome or WrongCount() for outcome in outcomes]

    def _read_item(self, place: int, entry: Entry, texts: dict[str, Tokens]) -> _Row | EngineError:
        options: ExtractOptions = entry.work.options
        want = wanted(options, THRESHOLD)
        if isinstance(want, ItemRejected):
            return want
        image = only_image(entry.item.payload)
        if isinstance(image, ItemRejected):
            return image
        unread = [label for label in want.labels if label not in texts]
        for label, tokens in zip(unread, self.tokenizer.encode(unread) if unread else (), strict=True):
            around, count = tokens.first + tokens.last, len(tokens.ids)
            if count == around or count > self._longest:
                message = f"The label has {count - around} tokens; it may have 1 to {self._longest - around}."
                return ItemRejected(message, param="options.labels")
            texts[label] = tokens
        pixels = self.processor(images=within(image, LONGEST_SIDE), return_tensors="pt")["pixel_values"]
        return _Row(place, want, image.size, pixels)

    def _detect(
        self, rows: Sequence[_Row], labels: Sequence[str], texts: Mapping[str, Tokens]
    ) -> list[Found | NotFinite]:
        import torch

        module: Any = self.ready()
        columns = {label: column for column, label in enumerate(labels)}
        with torch.inference_mode():
            words = self._embed([texts[label] for label in labels])
            places = module.image_embedder(pixel_values=self.sent(torch.cat([row.pixels for row in rows])))[0]
            features = places.flatten(1, 2)
            boxes = module.box_predictor(features, places).float().cpu().numpy()
            out: list[Found | NotFinite] = []
            for index, row in enumerate(rows):
                own = words[[columns[label] for label in row.want.labels]]
                logits = module.class_predictor(features[index : index + 1], own[None])[0][0]
                scores = logits.float().sigmoid().cpu().numpy()
                sides = (max(row.size),) * 4 if self._square else row.size * 2
                out.append(best(scores, corners(boxes[index]) * np.array(sides), row.want, row.want.labels))
        return out

    def _embed(self, rows: Sequence[Tokens]) -> torch.Tensor:
        """A vector of length one for each label."""
        import torch

        width = max(len(row.ids) for row in rows)
        ids = np.full((len(rows), width), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row.ids)] = row.ids
            mask[index, : len(row.ids)] = 1
        sent = {"input_ids": self.sent(torch.from_numpy(ids)), "attention_mask": self.sent(torch.from_numpy(mask))}
        body: Any = getattr(self.ready(), "owlv2" if self._square else "owlvit")
        vectors: torch.Tensor = body.get_text_features(**sent).pooler_output
        return torch.nn.functional.normalize(vectors, dim=-1)
