"""Objects by labels: Grounding DINO and MM Grounding DINO, as `transformers` has them.

Each label is a phrase of its own in the prompt, and where a phrase's tokens are is known, since the prompt is put
together from them: a box's score under a label is the highest of the label's own tokens. What does not fit the model's
text goes in further passes over the same image, so no label is cut; a box found in one pass is not weighed against
those of another. Images of one size go in one pass, whatever their labels: each has a prompt of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from catalog.modelfolder import read_json
from catalog.options import ExtractOptions
from engine.detection import Found, Wanted, best, corners, told, wanted
from engine.errors import EngineError, ItemRejected, NotFinite, WrongCount
from engine.images import only_image, widened
from engine.torch_adapter import FLOAT_BYTES, TorchOptions
from engine.types import Batch, Entry, Footprint, Outcome
from engine.vision import VisionAdapter, image_config

if TYPE_CHECKING:
    import torch

THRESHOLD = 0.25
"""Of a box and of its label, as the model's authors have it."""

MOST_RATIO = 16
"""Of an image's longer side to the shorter. One that is thinner is laid on white: it would have fewer places than the
model has to choose from."""

_KINDS = {
    "grounding-dino": "GroundingDinoForObjectDetection",
    "mm-grounding-dino": "MMGroundingDinoForObjectDetection",
}

_DELIMITERS = str.maketrans(".?", "  ")
"""Inside a label they would end its phrase."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Some labels as one text: its tokens, and where each label's own begin and end."""

    ids: list[int]
    labels: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """One image under one prompt."""

    place: int
    pixels: torch.Tensor
    prompt: _Prompt


@dataclass(slots=True)
class _Image:
    """One readable item: what is asked, its size as displayed and as the model sees it, and what was found."""

    want: Wanted
    size: tuple[int, int]
    shown: tuple[int, int]
    tokens: int
    found: Found = field(default_factory=list)


class GroundingDinoOptions(TorchOptions):
    """Weights are held in float32: the library's code for this model mixes it with half types, and fails."""

    dtype: Literal["float32"] = "float32"


class GroundingDinoAdapter(VisionAdapter):
    """One such model on one device."""

    options = GroundingDinoOptions

    def footprint(self) -> Footprint:
        """An image's activations are those of its widest layer, where the image's places meet the text.

        Nine times the feed-forward's width for each place, and seven times the model's: a model of the published sizes
        took 1.72 GB for an image of 800x1333 pixels on a CPU and 2.82 for two, and this says 1.79 for each.
        """
        config = read_json(self.files / "config.json")
        width, inner = int(config.get("d_model", 256)), int(config.get("encoder_ffn_dim", 2048))
        sides = image_config(self.files).get("size") or {}
        area = int(sides.get("shortest_edge", 800)) * int(sides.get("longest_edge", 1333))
        places = sum(area >> 6 + 2 * level for level in range(int(config.get("num_feature_levels", 4))))
        taken = FLOAT_BYTES[self.dtype] * places * (7 * width + 9 * inner)
        return Footprint(self.weight_bytes(), -(-taken // self.spec.image_length))

    def read_parts(self) -> torch.nn.Module:
        """The model, its processor and its tokenizer."""
        module, tokenizer = self.read_kind(_KINDS)
        self._stop = int(tokenizer.convert_tokens_to_ids("."))
        self._pad_id = int(tokenizer.pad_token_id or 0)
        self._longest = min(int(module.config.max_text_len), self.spec.max_length)
        return module  # type: ignore[no-any-return]  # the library has no types there

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """The objects in each image. Passes are of images of one size, and no larger than the batch."""
        self.ready()
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        images: dict[int, _Image] = {}
        rows: list[_Row] = []
        for place, entry in enumerate(batch.entries):
            read = self._read_item(place, entry)
            if isinstance(read, EngineError):
                outcomes[place] = read
            else:
                images[place], own = read
                rows.extend(own)
        for part in _passes(rows, len(batch.entries)):
            for row, found in zip(part, self._detect(part, images), strict=True):
                if isinstance(found, NotFinite):
                    outcomes[row.place] = found
                else:
                    images[row.place].found.extend(found)
        for place, image in images.items():
            outcomes[place] = outcomes[place] or told(image.found, image.want, image.size, image.tokens)
        return [outcome or WrongCount() for outcome in outcomes]

    def _read_item(self, place: int, entry: Entry) -> tuple[_Image, list[_Row]] | EngineError:
        options: ExtractOptions = entry.work.options
        want = wanted(options, THRESHOLD)
        if isinstance(want, ItemRejected):
            return want
        image = only_image(entry.item.payload)
        if isinstance(image, ItemRejected):
            return image
        prompts = self._prompts(want.labels)
        if isinstance(prompts, ItemRejected):
            return prompts
        field = widened(image, MOST_RATIO)
        pixels = self.processor(images=field, return_tensors="pt")["pixel_values"]
        tokens = self.spec.image_length + sum(len(prompt.ids) for prompt in prompts)
        return _Image(want, image.size, field.size, tokens), [_Row(place, pixels, prompt) for prompt in prompts]

    def _prompts(self, labels: Sequence[str]) -> list[_Prompt] | ItemRejected:
        """The labels as few texts as hold them: each label in lower case, with a full stop after it."""
        read = self.tokenizer.encode([label.lower().translate(_DELIMITERS) for label in labels])
        found: list[_Prompt] = []
        names: list[str] = []
        bodies: list[list[int]] = []
        length = 0
        for label, tokens in zip(labels, read, strict=True):
            body = tokens.ids[tokens.first : len(tokens.ids) - tokens.last]
            around = tokens.first + tokens.last
            if not body or around + len(body) + 1 > self._longest:
                message = f"The label has {len(body)} tokens; it may have 1 to {self._longest - around - 1}."
                return ItemRejected(message, param="options.labels")
            if bodies and around + length + len(body) + 1 > self._longest:
                found.append(self._prompt(names, bodies))
                names, bodies, length = [], [], 0
            names.append(label)
            bodies.append(body)
            length += len(body) + 1
        return [*found, self._prompt(names, bodies)]

    def _prompt(self, labels: Sequence[str], bodies: Sequence[list[int]]) -> _Prompt:
        blank = self.tokenizer.encode([""])[0]
        ids = blank.ids[: blank.first]
        spans = []
        for body in bodies:
            spans.append((len(ids), len(ids) + len(body)))
            ids = [*ids, *body, self._stop]
        return _Prompt([*ids, *blank.ids[blank.first :]], tuple(labels), tuple(spans))

    def _detect(self, rows: Sequence[_Row], images: dict[int, _Image]) -> list[Found | NotFinite]:
        import torch

        width = max(len(row.prompt.ids) for row in rows)
        ids = np.full((len(rows), width), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row.prompt.ids)] = row.prompt.ids
            mask[index, : len(row.prompt.ids)] = 1

        def compute() -> tuple[Any, Any]:
            with torch.inference_mode():
                found = self.ready()(
                    pixel_values=self.sent(torch.cat([row.pixels for row in rows])),
                    input_ids=self.sent(torch.from_numpy(ids)),
                    attention_mask=self.sent(torch.from_numpy(mask)),
                )
                return found.logits.float().sigmoid().cpu().numpy(), found.pred_boxes.float().cpu().numpy()

        shape = tuple(rows[0].pixels.shape[2:])
        scores, boxes = self.within_memory(f"a pass of {len(rows)} images of {shape[0]}x{shape[1]}", compute)
        out: list[Found | NotFinite] = []
        for row, own, placed in zip(rows, scores, boxes, strict=True):
            image = images[row.place]
            by_label = np.stack([own[:, start:stop].max(axis=1) for start, stop in row.prompt.spans], axis=1)
            pixels = corners(placed) * np.array(image.shown * 2)
            out.append(best(by_label, pixels, image.want, row.prompt.labels))
        return out


def _passes(rows: Sequence[_Row], most: int) -> Iterator[list[_Row]]:
    """Rows of one size of image together, those of like prompts side by side, at most so many."""
    by_size: dict[tuple[int, ...], list[_Row]] = {}
    for row in rows:
        by_size.setdefault(tuple(row.pixels.shape), []).append(row)
    for alike in by_size.values():
        alike.sort(key=lambda row: len(row.prompt.ids))
        for start in range(0, len(alike), most):
            yield alike[start : start + most]
