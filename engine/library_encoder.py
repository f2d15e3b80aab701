"""Text encoders of sentence-transformers that give another thing than one dense vector: how they are read and fed.

The modules are the library's own. Tokenising is ours, so that user text is text (see `catalog.tokenizer`), and each
item is cut, counted or refused by its own options. Only calls import torch.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from catalog.modelfolder import model_root, module_folders, read_json, weight_files
from catalog.schema import Spec
from catalog.tokenizer import PlainTokenizer, Tokens
from engine.adapters.base import LoadOptions
from engine.checkpoint import Shape, Weights, read_shape, read_weights
from engine.errors import ItemRejected, LoadFailed, LoadReason, TextTooLong
from engine.packing import Ids, Layout, alike
from engine.pretrained import ONE_ATTENTION, classified, positions, refuse_random, refuse_unsafe, rescales
from engine.torch_adapter import FLOAT_BYTES, TorchAdapter, TorchOptions
from engine.types import Batch, Footprint

if TYPE_CHECKING:
    import torch

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
        message = f"The text has {count} tokens and the model reads {longest}; shorten it or allow truncation."
        return TextTooLong(message, param="text")
    return Row(place, tokens.cut(longest, keep_end=keep_end), count)


def module_weights(folder: Path, float_bytes: int) -> Weights:
    """The tensors of all modules, by their files' headers."""
    places = [place for _, place in module_folders(folder)]
    files = weight_files(folder) + [file for place in places for file in sorted(place.glob("*.safetensors"))]
    return read_weights(dict.fromkeys(files), float_bytes)


def layout_of(tokenizer: Any) -> Layout:
    """How a model of this tokenizer wants its arrays."""
    return Layout(
        type_ids="token_type_ids" in tokenizer.model_input_names,
        pad_id=tokenizer.pad_token_id or 0,
        pad_type=tokenizer.pad_token_type_id,
        pad_left=tokenizer.padding_side == "left",
    )


class LibraryEncoderAdapter(TorchAdapter):
    """A model of sentence-transformers on one device. A family says which class reads it, and what its answer is.

    `reentrant`: the library's modules write to nothing but their own call's features, and the one thing that a model
    may keep between calls, rescaled rotary positions, is put under a lock.
    """

    options = EncoderOptions
    reentrant = True
    foreign: tuple[str, ...] = ()
    """Module types of other libraries that sentence-transformers reads as its own."""

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, EncoderOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        self._attention = options.attention
        self._lock: AbstractContextManager[Any] = nullcontext()

    @abstractmethod
    def build(self, source: str, **settings: Any) -> Any:
        """The library's model of a folder, by the library's own class and these of its arguments."""

    @abstractmethod
    def understand(self, model: Any) -> None:
        """Take what the family needs from the model, once read. Raises LoadFailed where it misfits the YAML."""

    def shape(self) -> Shape:
        """The sizes in the transformer's config."""
        return read_shape(read_json(model_root(self.files) / "config.json"))

    def weight_bytes(self) -> int:
        """Bytes of the weights of all modules once loaded."""
        return module_weights(self.files, FLOAT_BYTES[self.dtype]).bytes

    def footprint(self) -> Footprint:
        """As for every module of torch; with `eager` a token's scores in every head come on top, twice."""
        found = super().footprint()
        scores = 2 * self.shape().heads if self._attention == "eager" else 0
        more = FLOAT_BYTES[self.dtype] * self.spec.max_length * (1 + scores)
        return Footprint(found.weights, found.per_token + more)

    def read(self) -> torch.nn.Module:
        """The model as the library reads it. Raises LoadFailed."""
        refuse_unsafe(self.spec.id, self.files, self.foreign)
        try:
            return self._read()
        except LoadFailed:
            raise
        except Exception as error:
            raise classified(self.spec.id, error) from error

    def _read(self) -> torch.nn.Module:
        import torch
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()

        def build(attention: str) -> Any:
            return self.build(
                str(self.files),
                device="cpu",
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={
                    "use_safetensors": True,
                    "dtype": getattr(torch, self.dtype),
                    "attn_implementation": attention,
                },
            )

        try:
            model = build(self._attention)
        except ValueError as error:
            if ONE_ATTENTION not in str(error):
                raise
            model = build("eager")
        # The library's card refers back to the model: in such a ring the weights outlive the last use of them.
        model.model_card_data.model = None
        refuse_random(self.spec.id, model, module_weights(self.files, 1))
        for part in model.modules():
            config: Any = getattr(part, "config", None)
            if getattr(config, "use_cache", False):
                # A decoder that embeds would keep keys and values that nobody reads.
                config.use_cache = False
            if config is not None and rescales(config):
                self._lock = threading.Lock()
        self.understand(model)
        read: torch.nn.Module = model
        return read

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
