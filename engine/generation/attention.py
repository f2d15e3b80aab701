"""Attention of several sequences in one packed row, each over the keys and values that it has kept until now.

A model set to `IMPLEMENTATION` computes inside `within` alone: its layers hand over the keys and values of the row's
new tokens, which go into the caches of their sequences. Nothing is padded, and no sequence sees another. Imports
torch: never import this at the top of an adapter's module.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

IMPLEMENTATION = "sequence_sdpa"
BLOCK = 128
"""Tokens by which a cache grows."""
_HALVES = (torch.float16, torch.bfloat16)
_WIDEST = 256
"""Head size up to which there are variable-length kernels; it must be a multiple of 8 besides."""
_UNKNOWN = ("softcap", "position_bias", "s_aux", "sinks")
"""What some models add to their scores, and this does not."""


class SequenceCache:
    """Keys and values of one sequence, for each layer of shape (tokens, heads, size); grows by blocks up to `most`."""

    def __init__(self, most: int) -> None:
        self.length = 0
        self._most = most
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def put(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep a layer's new tokens, (tokens, heads, size), behind `length`; all until there, the new ones included."""
        end = self.length + key.shape[0]
        held = self._layers.get(layer)
        if held is None or held[0].shape[0] < end:
            size = max(end, min(self._most, -(-end // BLOCK) * BLOCK))
            held = self._layers[layer] = (
                _grown(None if held is None else held[0], key, self.length, size),
                _grown(None if held is None else held[1], value, self.length, size),
            )
        held[0][self.length : end] = key
        held[1][self.length : end] = value
        return held[0][:end], held[1][:end]

    @property
    def bytes(self) -> int:
        """What it takes now."""
        return sum(tensor.nbytes for pair in self._layers.values() for tensor in pair)


def _grown(old: torch.Tensor | None, like: torch.Tensor, kept: int, size: int) -> torch.Tensor:
    new = like.new_empty((size, *like.shape[1:]))
    if old is not None and kept:
        new[:kept] = old[:kept]
    return new


@dataclass(frozen=True, slots=True)
class Span:
    """The new tokens of one sequence in a packed row: from `start` on, `count` of them."""

    cache: SequenceCache
    start: int
    count: int


@dataclass(slots=True)
class Row:
    """A packed row. `windows` gathers which windows its layers asked for."""

    spans: Sequence[Span]
    windows: set[int | None] = field(default_factory=set)
    _bounds: tuple[torch.Tensor, torch.Tensor, int, int] | None = None

    def bounds(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, int, int]:
        """Where the sequences begin among the new tokens and among all, and the longest of each."""
        if self._bounds is None:
            new = [span.count for span in self.spans]
            full = [span.cache.length + span.count for span in self.spans]
            self._bounds = (_sums(new, device), _sums(full, device), max(new), max(full))
        return self._bounds


def _sums(lengths: list[int], device: torch.device) -> torch.Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)


class _Here(threading.local):
    row: Row | None = None


_here = _Here()


@contextmanager
def within(row: Row) -> Iterator[None]:
    """In this thread, calls of a model are on this row. Its caches grow in length once the call has gone well."""
    _here.row = row
    try:
        yield
    finally:
        _here.row = None
    for span in row.spans:
        span.cache.length += span.count


def register() -> None:
    """Make the name known to transformers. As often as you like."""
    AttentionInterface.register(IMPLEMENTATION, attend)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """A layer's attention: tensors of shape (1, heads, tokens, size) in, (1, tokens, heads, size) out."""
    row = _here.row
    if row is None:
        raise RuntimeError("a model of sequences was called outside of a step")
    unknown = [name for name in _UNKNOWN if kwargs.get(name) is not None]
    if unknown or query.shape[2] != key.shape[2] or query.shape[0] != 1:
        raise NotImplementedError(f"attention by sequence has no {(unknown or ['other keys'])[0]}")
    window, scale = kwargs.get("sliding_window"), kwargs.get("scaling")
    row.windows.add(window)
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    kept = [
        span.cache.put(
            module.layer_idx, k[span.start : span.start + span.count], v[span.start : span.start + span.count]
        )
        for span in row.spans
    ]
    if q.is_cuda and q.dtype in _HALVES and q.shape[2] % 8 == 0 and q.shape[2] <= _WIDEST and q.shape[2] == v.shape[2]:
        return _by_kernel(q, kept, row, window, scale)[None], None
    out = q.new_empty((*q.shape[:2], v.shape[2]))
    for span, (keys, values) in zip(row.spans, kept, strict=True):
        out[span.start : span.start + span.count] = _one(
            q[span.start : span.start + span.count], keys, values, window, scale
        )
    return out[None], None


def _by_kernel(
    query: torch.Tensor,
    kept: list[tuple[torch.Tensor, torch.Tensor]],
    row: Row,
    window: int | None,
    scale: float | None,
) -> torch.Tensor:
    """One call for all sequences: the card's kernel for variable lengths, which takes half types only."""
    from torch.nn.attention.varlen import varlen_attn

    new, full, most_new, most = row.bounds(query.device)
    found: Any = varlen_attn(
        query,
        torch.cat([keys for keys, _ in kept]),
        torch.cat([values for _, values in kept]),
        new,
        full,
        most_new,
        most,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != kept[0][0].shape[1],
    )
    packed: torch.Tensor = found
    return packed


def _one(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int | None, scale: float | None
) -> torch.Tensor:
    """One sequence: new tokens (new, heads, size) over all (all, key heads, size); (new, heads, size)."""
    new, heads, size = query.shape
    everything, key_heads, _ = keys.shape
    if window is not None:
        seen = min(everything, new + window - 1)
        keys, values = keys[everything - seen :], values[everything - seen :]
        everything = seen
    k, v = keys.transpose(0, 1)[None], values.transpose(0, 1)[None]
    each = heads // key_heads
    if new == everything > 1 and (window is None or new <= window):
        q = query.transpose(0, 1)[None]
        found = scaled_dot_product_attention(q, k, v, scale=scale, is_causal=True, enable_gqa=each > 1)
        return found[0].transpose(0, 1)
    # Query heads of one key head stand behind each other as if they were tokens, so that no key is repeated.
    q = query.transpose(0, 1).reshape(1, key_heads, each * new, size)
    mask = None
    if new > 1:
        mask = _seen(new, everything, window, query.device).repeat(each, 1)
    found = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return found.reshape(heads, new, -1).transpose(0, 1)


def _seen(new: int, everything: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Which of all tokens each of the last `new` sees."""
    own = torch.arange(everything - new, everything, device=device)[:, None]
    other = torch.arange(everything, device=device)[None, :]
    seen = other <= own
    return seen if window is None else seen & (other > own - window)
