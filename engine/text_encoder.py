"""What encoders of texts share: rows that are cut, counted or refused by their own options, and passes of like lengths.

Tokenising is ours, so that user text is text (see `catalog.tokenizer`). Only calls import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from catalog.modelfolder import model_root, read_json
from catalog.schema import Spec
from catalog.tokenizer import PlainTokenizer, Tokens
from engine.adapters.base import LoadOptions
from engine.checkpoint import Shape, read_shape
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, TextTooLong
from engine.packing import Ids, Layout, alike
from engine.pretrained import positions
from engine.torch_adapter import FLOAT_BYTES, TorchAdapter, TorchOptions
from engine.types import Batch, Footprint

T = TypeVar("T")

_FLOOR = {"cpu": 1024}
_FLOOR_ELSEWHERE = 8192
"""Tokens of a pass for which there is always room: see `engine.limits`."""


class EncoderOptions(TorchOptions):
    """How the weights are held and attention is computed."""

    attention: Literal["sdpa", "eager"] = "sdpa"


@dataclass(frozen=True, slots=True)
class Row:
    """One readable text of a batch: its place, what goes in, and how many tokens it had before it was cut."""

    place: int
    tokens: Tokens
    counted: int

    @property
    def truncated(self) -> bool:
        """Whether a part of the text was left out."""
        return self.counted > len(self.tokens.ids)


def read_row(
    place: int, tokens: Tokens, longest: int, *, truncate: bool, keep_end: bool
) -> Row | ItemRejected | TextTooLong:
    """The text as it goes in, cut to `longest` tokens; or why it does not."""
    count = len(tokens.ids)
    if count == 0:
        return ItemRejected("The model's tokenizer finds nothing to read in this text.", param="text")
    if count > longest and not truncate:
        return TextTooLong.counted(count, longest)
    return Row(place, tokens.cut(longest, keep_end=keep_end), count)


def said_of_query(error: EngineError) -> EngineError:
    """The error of a text, said of the query that it is."""
    words = error.message.replace("The item", "The query", 1).replace("The text", "The query", 1)
    return type(error)(words, param="query")


def layout_of(tokenizer: Any) -> Layout:
    """How a model of this tokenizer wants its arrays."""
    return Layout(
        type_ids="token_type_ids" in tokenizer.model_input_names,
        pad_id=tokenizer.pad_token_id or 0,
        pad_type=tokenizer.pad_token_type_id,
        pad_left=tokenizer.padding_side == "left",
    )


class TextEncoderAdapter(TorchAdapter):
    """An encoder of texts on one device.

    `reentrant`: modules write to nothing but their own call's tensors, and the one thing that a model may keep between
    calls, rescaled rotary positions, is put under `lock`.
    """

    options = EncoderOptions
    reentrant = True

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, EncoderOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        self.attention = options.attention
        self.lock: AbstractContextManager[Any] = nullcontext()

    def shape(self) -> Shape:
        """The sizes in the transformer's config."""
        return read_shape(read_json(model_root(self.files) / "config.json"))

    def footprint(self) -> Footprint:
        """As for every module of torch; with `eager` a token's scores in every head come on top, twice."""
        found = super().footprint()
        scores = 2 * self.shape().heads if self.attention == "eager" else 0
        more = FLOAT_BYTES[self.dtype] * self.spec.max_length * (1 + scores)
        return Footprint(found.weights, found.per_token + more)

    def check_length(self, transformer: Any) -> None:
        """Raise LoadFailed if the YAML promises more tokens than the model has positions for."""
        most = positions(transformer)
        if 0 < most < self.spec.max_length:
            message = f"{self.spec.id} reads {most} tokens; its YAML says {self.spec.max_length}."
            raise LoadFailed(message, LoadReason.CONFIG)

    def passes(self, batch: Batch, rows: Sequence[Row]) -> list[list[Row]]:
        """The rows in passes of like lengths, within the room that the batch has."""
        room = max(batch.computed, _FLOOR.get(self.device, _FLOOR_ELSEWHERE))
        return [[rows[place] for place in places] for places in alike([len(row.tokens.ids) for row in rows], room)]

    def once(
        self, batch: Batch, rows: Mapping[int, Row], compute: Callable[[Sequence[Row]], Sequence[T]]
    ) -> dict[int, tuple[Row, T]]:
        """Each row with what `compute` gives of it, which is asked once for equal texts. Raises OutOfMemory."""
        different = {tuple(row.tokens.ids): row for row in rows.values()}
        made: dict[tuple[int, ...], T] = {}
        for some in self.passes(batch, list(different.values())):
            given = self.within_memory(f"a pass of {len(some)} texts", partial(compute, some))
            made.update(zip([tuple(row.tokens.ids) for row in some], given, strict=True))
        return {key: (row, made[tuple(row.tokens.ids)]) for key, row in rows.items()}

    def on_device(self, arrays: dict[str, Ids]) -> dict[str, Any]:
        """The features of a pass, as the library names them."""
        import torch

        features: dict[str, Any] = {
            name: torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for name, array in arrays.items()
        }
        return features | {"modality": "text"}


def tokenizer_of(name: str, module: Any) -> PlainTokenizer:
    """Our own copy of a module's tokenizer. Raises LoadFailed where it has none that reads plain text."""
    tokenizer = getattr(module, "tokenizer", None)
    if tokenizer is None or not hasattr(tokenizer, "backend_tokenizer"):
        message = f"{name} does not begin with a module that reads plain text; choose another family."
        raise LoadFailed(message, LoadReason.CONFIG)
    return PlainTokenizer(tokenizer.backend_tokenizer.to_str())
