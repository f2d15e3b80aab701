"""An embedder in the layout of sentence-transformers, in memory and computing.

The modules are the library's own, so that any pooling or projection it knows works as it does there. Where a model can
take them, the texts of a batch go in unpadded. Only calls import torch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from catalog.tokenizer import PlainTokenizer, Tokens
from engine.failures import out_of_memory
from engine.packing import Ids, Layout, agree, pack, pad, trial

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

_LONGEST_TRIAL = 1024
"""Tokens of the longest text that a load tries. A model whose window is wider is padded."""
_MEASURED = 4096
"""Tokens of the batch whose activations are measured."""
_EXACT, _HALF = (1e-4, 0.99999), (2e-2, 0.998)
"""How far packed and padded vectors may differ in float32 and in half types: see `agree`."""


Step = Callable[[dict[str, Any]], dict[str, Any]]
"""One module of an embedder, or what stands for it: features in, features out."""


@dataclass(frozen=True, slots=True)
class Embedder:
    """A model in memory and how it wants its texts.

    `steps` are its modules without the Normalize ones at the end. `words` are ids of plain tokens. `prompts` are those
    that its files name, `prefix` the one that it puts before a text that comes without. `skips_prompt` tells that
    pooling leaves the prompt's tokens out. `positions` bounds a text, 0 if nothing does. `lock` is held while it
    computes. `stream` is its own on a card, None elsewhere. `unpadded` tells that its batches are packed, which
    `try_packed` has to find out first. `beside` is what it holds in bytes that torch does not know of.
    """

    model: SentenceTransformer
    steps: tuple[Step, ...]
    tokenizer: PlainTokenizer
    layout: Layout
    words: tuple[int, ...]
    keep_end: bool
    skips_prompt: bool
    prompts: Mapping[str, str]
    prefix: str
    positions: int
    lock: AbstractContextManager[Any]
    stream: torch.cuda.Stream | None = None
    unpadded: bool = False
    beside: int = 0

    @property
    def bytes(self) -> int:
        """What parameters and buffers take, and what is beside them."""
        tensors = (self.model.parameters(), self.model.buffers())
        return self.beside + sum(tensor.nbytes for part in tensors for tensor in part)

    def embed(self, rows: Sequence[Tokens], device: str, prompt: int = 0) -> NDArray[np.float32]:
        """One forward pass: a vector for each row. `prompt` tokens at each start are the prompt's."""
        import torch

        own = nullcontext() if self.stream is None else torch.cuda.stream(self.stream)
        with torch.inference_mode(), self.lock, own:
            # Texts of one length are padded with nothing.
            if self.unpadded and any(len(row.ids) != len(rows[0].ids) for row in rows):
                return self._packed(rows, device, prompt)
            features = self._features(pad(rows, self.layout), device, prompt)
            for step in self.steps:
                features = step(features)
            return _vectors(features)

    def _packed(self, rows: Sequence[Tokens], device: str, prompt: int) -> NDArray[np.float32]:
        from engine.attention import Segments, within

        packed = pack(rows, self.layout)
        features = self._features(packed.arrays, device, prompt)
        bounds = _sent(packed.bounds, device)
        texts = features.pop("seq_idx")
        with within(Segments(bounds, packed.groups)):
            features = self.steps[0](features)
        # The library's pooling knows a packed row by these names.
        features |= {"cu_seq_lens_q": bounds, "seq_idx": texts}
        for step in self.steps[1:]:
            features = step(features)
        found = _vectors(features)
        vectors = np.empty_like(found)
        vectors[list(packed.order)] = found
        return vectors

    def _features(self, arrays: dict[str, Ids], device: str, prompt: int) -> dict[str, Any]:
        features: dict[str, Any] = {name: _sent(array, device) for name, array in arrays.items()}
        features["modality"] = "text"
        if prompt:
            features["prompt_length"] = prompt
        return features


def _sent(array: NDArray[Any], device: str) -> torch.Tensor:
    """The array on the device. To a card it goes from pinned memory, and nobody waits for it."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor if device == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def _vectors(features: dict[str, Any]) -> NDArray[np.float32]:
    vectors: torch.Tensor = features["sentence_embedding"]
    return np.asarray(vectors.float().cpu().numpy(), dtype=np.float32)


def try_packed(embedder: Embedder, device: str, longest: int) -> Embedder:
    """The embedder set to pack its batches, if that gives the same vectors as padding does; otherwise as it was.

    Asked of the model itself, since architectures differ in what they take: some texts of mixed lengths go through both
    ways, one of them longer than the window of a model that has one. Raises OutOfMemory.
    """
    from engine.attention import IMPLEMENTATION, register, window

    inner: Any = embedder.model[0].model
    seen = window(inner)
    if not inner.is_backend_compatible() or (seen is not None and _LONGEST_TRIAL <= seen < longest):
        return embedder
    one = embedder.tokenizer.encode(["a"])[0]
    lengths = [min(longest, length) for length in (6, 23, 6, 3, 40, *([] if seen is None else [seen + 9]))]
    rows = trial(one, embedder.words, lengths)
    register()
    packing, before = replace(embedder, unpadded=True), inner.config._attn_implementation
    try:
        padded = embedder.embed(rows, device)
        inner.set_attn_implementation(IMPLEMENTATION)
        bounds = _EXACT if next(inner.parameters()).itemsize == 4 else _HALF
        if agree(padded, np.roll(padded, 1, axis=0), *bounds):
            log.info("%s gives all texts one vector, which proves nothing, so it is padded", type(inner).__name__)
        elif agree(padded, packing.embed(rows, device), *bounds):
            return packing
        else:
            log.info("%s gives other vectors without padding, so it is padded", type(inner).__name__)
    except Exception as error:
        if out_of_memory(error):
            raise
        log.info("%s does not run without padding, so it is padded: %r", type(inner).__name__, error)
    inner.set_attn_implementation(before)
    return embedder


def measured_activations(embedder: Embedder, device: str, longest: int) -> int:
    """Bytes of activations that a token takes on a card, by torch's own count of a batch of the longest texts.

    What others compute on the card meanwhile is counted in, so it may be too much and is never too little.
    """
    import torch

    one = embedder.tokenizer.encode(["a"])[0]
    rows = trial(one, embedder.words, [longest] * max(1, _MEASURED // longest))
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    embedder.embed(rows, device)
    peak: int = torch.cuda.max_memory_allocated(device)
    return -(-(peak - before) // sum(len(row.ids) for row in rows))
