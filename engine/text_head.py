"""Models of transformers that read texts and give logits: of the whole text, of a pair, or of each token.

Tokenising is ours, so that user text is text (see `catalog.tokenizer`), and so is making passes of many rows: whatever
the callers sent, they go through together. Weights are read from safetensors and no code that comes with a model is
run, unless its YAML says that it needs a pickle, which is read as tensors alone, or code: the catalog gives out such a
model only where an operator trusts it.

Runs may overlap: the library's modules write to nothing but their own call's tensors, and the one thing that a model
may keep between calls, rescaled rotary positions, is put under a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from catalog.modelfolder import missing_weights, model_root, read_json, read_modules, weight_files
from catalog.options import ExtractOptions
from catalog.schema import Spec
from catalog.tokenizer import PlainTokenizer, Tokens
from engine.adapters.base import LoadOptions
from engine.checkpoint import Shape, read_shape
from engine.errors import ItemRejected, LoadFailed, LoadReason
from engine.library_model import whole_model
from engine.packed_head import packed_logits, try_packed
from engine.packing import Layout, alike, pad, together
from engine.pickled import folder_weights
from engine.pretrained import classified, first_position, positions, rescales, words
from engine.torch_adapter import FLOAT_BYTES, TorchAdapter
from engine.types import Batch, Footprint
from engine.windows import Window, cut

if TYPE_CHECKING:
    import torch

Logits = NDArray[np.float32]

_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")

_FLOOR = {"cpu": 1024}
_FLOOR_ELSEWHERE = 8192
"""Tokens of a pass for which there is always room: see `engine.limits`."""


_KEEPS_SCORES = {"deberta", "deberta-v2", "mpnet"}
"""Architectures with an attention of their own: scores by content and by position, in every head."""


class TextHeadAdapter(TorchAdapter):
    """A tokenizer and a model with a head. A family says which head, and what the logits mean.

    `lock` is held while it computes. `tokenizer`, `layout` and `keep_end` are there between `load` and `unload`.
    `keep_end` tells that long texts lose their beginning.
    """

    reentrant = True
    head: ClassVar[str]
    """The class of transformers that reads a folder, where that is one for the whole family."""

    modules: ClassVar[tuple[str, ...]] = ()
    """Modules of sentence-transformers after the first that the family computes itself."""

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        self.lock: AbstractContextManager[Any] = nullcontext()
        self._forget()

    def _forget(self) -> None:
        self._tokenizer: PlainTokenizer | None = None
        self.layout = Layout(type_ids=False)
        self._words: tuple[int, ...] = ()
        self.unpadded = False
        self.keep_end = False

    def forget(self) -> None:
        """Drop the tokenizer."""
        self._forget()

    @property
    def tokenizer(self) -> PlainTokenizer:
        """The model's tokenizer. Raises RuntimeError before the load."""
        if self._tokenizer is None:
            raise RuntimeError("run before load or restore")
        return self._tokenizer

    def footprint(self) -> Footprint:
        """As of any torch module; besides, a token's row of the mask, and its scores where attention keeps them."""
        own = super().footprint()
        config = read_json(model_root(self.files) / "config.json")
        scores = 3 * self.shape().heads if config.get("model_type") in _KEEPS_SCORES else 0
        row = FLOAT_BYTES[self.dtype] * self.spec.max_length * (1 + scores)
        return Footprint(own.weights, own.per_token + row)

    def weight_bytes(self) -> int:
        """By the headers of the files, or of the pickle that the YAML allows."""
        return folder_weights(self.spec, self.files, FLOAT_BYTES[self.dtype]).bytes

    def shape(self) -> Shape:
        """The sizes in the model's config."""
        return read_shape(read_json(model_root(self.files) / "config.json"))

    def read(self) -> torch.nn.Module:
        """The model as the library reads it. Raises LoadFailed."""
        root = model_root(self.files)
        lacking = missing_weights(self.files, pickle="pickle" in self.spec.source.needs)
        if lacking is None and not any(any(root.glob(pattern)) for pattern in _VOCABULARIES):
            # The library would make one up that knows no word.
            lacking = "has no tokenizer"
        if lacking is not None:
            raise LoadFailed(f"{self.files} {lacking}. Fetch the model's files again.", LoadReason.NOT_FOUND)
        wanted = self.head_class().removeprefix("AutoModel")
        named = read_json(root / "config.json").get("architectures") or [wanted]
        if not any(str(name).endswith(wanted) for name in named):
            # With a head of the same shape it would load and say nothing of worth.
            message = f"{self.spec.id} is a {named[0]}, and this family reads what ends with {wanted}."
            raise LoadFailed(message, LoadReason.CONFIG)
        strange = [str(entry.get("type")) for entry in read_modules(self.files)[1:]]
        if any(not kind.endswith(self.modules) for kind in strange):
            message = f"{self.spec.id} has modules after its transformer, which this family does not compute."
            raise LoadFailed(message, LoadReason.CONFIG)
        try:
            return self._read(root)
        except LoadFailed:
            raise
        except Exception as error:
            raise classified(self.spec.id, error) from error

    def _read(self, root: Path) -> torch.nn.Module:
        from transformers import AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        code = "code" in self.spec.source.needs
        tokenizer: Any = AutoTokenizer.from_pretrained(root, local_files_only=True, trust_remote_code=code)
        safe = bool(weight_files(self.files))
        model: Any = whole_model(self.spec.id, self.head_class(), root, dtype=self.dtype, safetensors=safe, code=code)
        most = positions(model)
        if 0 < most < self.spec.max_length:
            message = f"{self.spec.id} reads {most} tokens; its YAML says {self.spec.max_length}."
            raise LoadFailed(message, LoadReason.CONFIG)
        if getattr(model.config, "use_cache", False):
            model.config.use_cache = False
        self._tokenizer = PlainTokenizer(tokenizer.backend_tokenizer.to_str())
        self.layout = Layout(
            type_ids="token_type_ids" in tokenizer.model_input_names,
            pad_id=tokenizer.pad_token_id or 0,
            pad_type=tokenizer.pad_token_type_id,
            pad_left=tokenizer.padding_side == "left",
            first_position=first_position(model),
        )
        self.keep_end = tokenizer.truncation_side == "left"
        self._words = words(tokenizer)
        self.lock = threading.Lock() if rescales(model.config) else nullcontext()
        self.understand(model, tokenizer)
        read: torch.nn.Module = model
        return read

    def head_class(self) -> str:
        """The class of transformers that reads these files."""
        return self.head

    def understand(self, model: Any, tokenizer: Any) -> None:
        """Take from the model and its tokenizer what the family needs besides. Raises LoadFailed where it misfits."""

    def check_labels(self, known: Sequence[str], said: Sequence[str] = ()) -> None:
        """Raise LoadFailed if the YAML names a label, as its facts or as `said`, that the model does not have."""
        facts = self.spec.tasks.extract
        for label in (*said, *(facts.labels if facts else ())):
            if label not in known:
                message = f"{self.spec.id} has no label {label!r}, as its YAML says; it has {', '.join(known)}."
                raise LoadFailed(message, LoadReason.CONFIG)

    def strange_label(self, known: Sequence[str], options: ExtractOptions) -> ItemRejected | None:
        """Why these options cannot be had: they ask for a label that the model does not have. None if they do not."""
        strange = next((label for label in options.labels or () if label not in known), None)
        if strange is None:
            return None
        message = f"{self.spec.id} has no label {strange[:100]!r}; it has {', '.join(known)[:500]}."
        return ItemRejected(message, param="options.labels")

    def warm_up(self) -> None:
        """Find out whether the model runs without padding."""
        one = self.tokenizer.encode(["a"])[0]
        self.unpadded = try_packed(self.ready(), self.layout, one, self._words, self.spec.max_length)

    def room(self, batch: Batch) -> int:
        """How many tokens a pass may have: those that the batch has room for, and never fewer than there is."""
        return max(batch.computed, _FLOOR.get(self.device, _FLOOR_ELSEWHERE))

    def logits(self, rows: Sequence[Tokens], room: int) -> list[Logits]:
        """The logits of each row, in passes of at most `room` tokens: (labels,), or (tokens, labels)."""
        found: dict[int, Logits] = {}
        lengths = [len(row.ids) for row in rows]
        for places in (together if self.unpadded else alike)(lengths, room):
            own = [rows[place] for place in places]
            doing = f"a pass of {len(own)} texts padded to {lengths[places[0]]} tokens"
            values = self.within_memory(doing, lambda own=own: self.one_pass(own))  # type: ignore[misc]
            found.update(zip(places, values, strict=True))
        return [found[place] for place in range(len(rows))]

    def one_pass(self, rows: Sequence[Tokens]) -> list[Logits]:
        """The logits of rows that go through together."""
        import torch

        if self.unpadded and any(len(row.ids) != len(rows[0].ids) for row in rows):
            with torch.inference_mode(), self.lock:
                values = packed_logits(self.ready(), rows, self.layout, self.device).float().cpu().numpy()
            return self._lines(values, rows)
        arrays = {name: torch.from_numpy(array).to(self.device) for name, array in pad(rows, self.layout).items()}
        with torch.inference_mode(), self.lock:
            values = self.ready()(**arrays).logits.float().cpu().numpy()
        return self._lines(values, rows)

    def _lines(self, values: Logits, rows: Sequence[Tokens]) -> list[Logits]:
        """What each row has of the logits of a pass, without those of padding."""
        if values.ndim == 2:
            return list(values)
        longest = values.shape[1]
        left = self.layout.pad_left
        sizes = [len(row.ids) for row in rows]
        return [row[longest - size :] if left else row[:size] for row, size in zip(values, sizes, strict=True)]


def softmax(logits: Logits) -> Logits:
    """Along the last axis, in the way that no float overflows."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True), dtype=np.float32)


def sigmoid(logits: Logits) -> Logits:
    """Of each value by itself, in the way that no float overflows."""
    small = np.exp(-np.abs(logits))
    return np.asarray(np.where(logits >= 0, 1 / (1 + small), small / (1 + small)), dtype=np.float32)


def windowed(tokens: Tokens, longest: int, overlap: int) -> list[tuple[Tokens, Window]]:
    """A text as inputs of at most `longest` tokens, each with the window of the text's own tokens that it is."""
    own = len(tokens.body)
    room = max(1, longest - tokens.first - tokens.last)
    places = [(index, index + 1) for index in range(own)]
    return [
        (tokens.part(window.first, window.stop), window) for window in cut(places, own, room, min(overlap, room - 1))
    ]
