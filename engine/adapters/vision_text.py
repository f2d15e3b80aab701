"""Images and texts in one space: CLIP, SigLIP and their kin, as `transformers` has them.

An item is a text or an image; one batch may hold both, and each kind goes through its own half of the model in one
pass. Texts are cut, counted or refused by their own options. Vectors are those of the library's `get_text_features`
and `get_image_features`, finished by `engine.outputs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.modelfolder import read_json
from catalog.options import EncodeOptions
from catalog.schema import EncodeFacts, Spec
from catalog.tokenizer import Tokens
from engine.adapters.base import LoadOptions
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, TextTooLong, WrongCount
from engine.images import only_image
from engine.outputs import Matrix, finish_vectors
from engine.readings import beside_image, text_of
from engine.types import Batch, Entry, Outcome, Output
from engine.vision import VisionAdapter, plain_tokenizer, read_image_processor, read_tokenizer

if TYPE_CHECKING:
    import torch

_WHOLE = {"siglip", "siglip2"}
"""Model types that take the vector of the last place of a row of fixed length: their texts are always padded to it."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A text of the batch: its place, what goes in, and how many tokens it has."""

    place: int
    tokens: Tokens
    counted: int


@dataclass(frozen=True, slots=True)
class _Picture:
    """An image of the batch: its place, and what the library's processor makes of it."""

    place: int
    arrays: dict[str, torch.Tensor]


class VisionTextAdapter(VisionAdapter):
    """One such model on one device."""

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if spec.tasks.encode is None:
            raise LoadFailed(f"{spec.id} needs 'tasks.encode' in its YAML to be of this family.", LoadReason.CONFIG)
        self._facts: EncodeFacts = spec.tasks.encode

    def forget(self) -> None:
        """Drop the processor, the tokenizer and how it pads."""
        super().forget()
        self._pad_id = 0
        self._mask = self._left = False
        self._fixed = 0

    def read_parts(self) -> torch.nn.Module:
        """The model, its processor and its tokenizer."""
        config = read_json(self.files / "config.json")
        reads = int(config.get("text_config", {}).get("max_position_embeddings") or 0)
        module: Any = self.read_model("AutoModel")
        if not hasattr(module, "get_text_features") or not hasattr(module, "get_image_features"):
            message = f"{self.spec.id} has no space of both texts and images; choose another family."
            raise LoadFailed(message, LoadReason.CONFIG)
        reads = reads or int(module.config.text_config.max_position_embeddings)
        if reads < self.spec.max_length:
            message = f"{self.spec.id} reads {reads} tokens; its YAML says {self.spec.max_length}."
            raise LoadFailed(message, LoadReason.CONFIG)
        tokenizer = read_tokenizer(self.files)
        self.processor = read_image_processor(self.files)
        self.tokenizer = plain_tokenizer(tokenizer)
        self._pad_id = tokenizer.pad_token_id or 0
        self._mask = "attention_mask" in tokenizer.model_input_names
        self._left = tokenizer.padding_side == "left"
        self._fixed = reads if module.config.model_type in _WHOLE else 0
        return module  # type: ignore[no-any-return]  # the library has no types there

    def warm_up(self) -> None:
        """One word: its vector is as long as the YAML says."""
        found = self._texts([_Text(0, self.tokenizer.encode(["word"])[0], 1)]).shape[1]
        if found != self._facts.dims:
            message = f"{self.spec.id} gives {found} dimensions; its YAML says {self._facts.dims}."
            raise LoadFailed(message, LoadReason.CONFIG)

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """A vector for each item: all texts in one pass, all images in another."""
        self.ready()
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        texts: list[_Text] = []
        pictures: list[_Picture] = []
        for place, entry in enumerate(batch.entries):
            row = self._read_item(place, entry)
            match row:
                case _Text():
                    texts.append(row)
                case _Picture():
                    pictures.append(row)
                case error:
                    outcomes[place] = error
        options = [entry.work.options for entry in batch.entries]
        if texts:
            vectors = self.within_memory(f"a pass of {len(texts)} texts", lambda: self._texts(texts))
            for text, vector in zip(
                texts, finish_vectors(vectors, [options[text.place] for text in texts]), strict=True
            ):
                cut = text.counted > len(text.tokens.ids)
                outcomes[text.place] = _output(vector, text.counted, truncated=cut)
        if pictures:
            vectors = self.within_memory(f"a pass of {len(pictures)} images", lambda: self._pictures(pictures))
            own = [options[picture.place] for picture in pictures]
            for picture, vector in zip(pictures, finish_vectors(vectors, own), strict=True):
                outcomes[picture.place] = _output(vector, self.spec.image_length, images=1)
        return [outcome or WrongCount() for outcome in outcomes]

    def _read_item(self, place: int, entry: Entry) -> _Text | _Picture | EngineError:
        payload = entry.item.payload
        if "images" not in payload:
            text = text_of(payload)
            return self._read_text(place, text, entry.work.options) if isinstance(text, str) else text
        if "text" in payload:
            return ItemRejected("Send a text or an image: each has a vector of its own.", param="images")
        image = beside_image(entry.work.options) or only_image(payload)
        if isinstance(image, ItemRejected):
            return image
        return _Picture(place, dict(self.processor(images=image, return_tensors="pt")))

    def _read_text(self, place: int, text: str, options: EncodeOptions) -> _Text | EngineError:
        longest = self.spec.max_length
        tokens: Tokens = self.tokenizer.encode([options.prefix(self._facts) + text])[0]
        count = len(tokens.ids)
        if count == tokens.first + tokens.last:
            return ItemRejected("The model's tokenizer finds nothing to read in this text.", param="text")
        if count > longest and not options.truncate:
            return TextTooLong.counted(count, longest)
        return _Text(place, tokens.cut(longest), count)

    def _texts(self, rows: Sequence[_Text]) -> Matrix:
        import torch

        width = self._fixed or max(len(row.tokens.ids) for row in rows)
        ids = np.full((len(rows), width), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for index, row in enumerate(rows):
            count = len(row.tokens.ids)
            own = slice(width - count, width) if self._left else slice(count)
            ids[index, own] = row.tokens.ids
            mask[index, own] = 1
        arrays = {"input_ids": torch.from_numpy(ids)}
        if self._mask:
            arrays["attention_mask"] = torch.from_numpy(mask)
        return self._vectors("get_text_features", arrays)

    def _pictures(self, rows: Sequence[_Picture]) -> Matrix:
        import torch

        names = rows[0].arrays
        return self._vectors(
            "get_image_features", {name: torch.cat([row.arrays[name] for row in rows]) for name in names}
        )

    def _vectors(self, half: str, arrays: dict[str, torch.Tensor]) -> Matrix:
        import torch

        sent = {name: self.sent(values) for name, values in arrays.items()}
        with torch.inference_mode():
            found = getattr(self.ready(), half)(**sent).pooler_output
        return np.asarray(found.float().cpu().numpy(), dtype=np.float32)


def _output(vector: dict[str, Any] | EngineError, tokens: int, *, truncated: bool = False, images: int = 0) -> Outcome:
    if isinstance(vector, EngineError):
        return vector
    return Output({"dense": vector}, tokens=tokens, truncated=truncated, usage={"images": images} if images else {})
