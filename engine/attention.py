"""Attention within each text of a packed row, as a function that transformers calls by name.

A model set to `IMPLEMENTATION` computes padded batches as with `sdpa`, and packed ones inside `within`. Which it is, is
known to the calling thread alone, so threads share a model. Imports torch: never import this at the top of a module.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from engine.packing import Group

IMPLEMENTATION = "packed_sdpa"
_HALVES = (torch.float16, torch.bfloat16)
_WIDEST = 256
"""Head size up to which there are variable-length kernels; it must be a multiple of 8 besides."""
_UNKNOWN = ("softcap", "position_bias", "s_aux")
"""What some models add to their scores, and this does not."""

_WINDOWS = ("sliding_window", "attention_chunk_size")
"""What models call the part of a text that a token sees."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The texts of a packed row. `bounds` is on the device, in the int32 that the kernels want."""

    bounds: torch.Tensor
    groups: tuple[Group, ...]


class _Here(threading.local):
    segments: Segments | None = None


_here = _Here()


@contextmanager
def within(segments: Segments) -> Iterator[None]:
    """In this thread, calls of a model are on one packed row with these texts."""
    _here.segments = segments
    try:
        yield
    finally:
        _here.segments = None


def register() -> None:
    """Make the name known to transformers. As often as you like."""
    AttentionInterface.register(IMPLEMENTATION, attend)
    AttentionMaskInterface.register(IMPLEMENTATION, _mask)


def window(model: torch.nn.Module) -> int | None:
    """The widest window that the model's layers look through, None if all see whole texts.

    Some layers keep it, some read it from their config at every call. One that is only in the mask counts as well:
    packed, it would be lost, and a text that is longer shows that.
    """
    found: list[object] = []
    for module in model.modules():
        places = (module, getattr(module, "config", None))
        found += [getattr(place, name, None) for place in places for name in _WINDOWS]
    return max((size for size in found if isinstance(size, int) and size > 0), default=None)


def _mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    return sdpa_mask(*args, **kwargs) if _here.segments is None else None


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """A layer's attention: tensors of shape (texts, heads, tokens, size) in, (texts, tokens, heads, size) out."""
    segments = _here.segments
    if segments is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    unknown = [name for name in _UNKNOWN if kwargs.get(name) is not None]
    if unknown:
        raise NotImplementedError(f"packed attention has no {unknown[0]}")
    causal = kwargs.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    plan = _Plan(kwargs.get("scaling"), bool(causal), kwargs.get("sliding_window"), query.shape[1] != key.shape[1])
    if query.device.type == "cpu":
        out = _by_groups(query[0], key[0], value[0], segments, plan)
    elif query.dtype in _HALVES and query.shape[3] % 8 == 0 and query.shape[3] <= _WIDEST:
        out = _by_kernel(query[0], key[0], value[0], segments, plan)
    else:
        out = _jagged(query[0], key[0], value[0], segments, plan)
    return out[None], None


@dataclass(frozen=True, slots=True)
class _Plan:
    """`window` bounds how far a token sees, itself included; None sees the whole text. `grouped`: fewer key heads."""

    scale: float | None
    causal: bool
    window: int | None
    grouped: bool


def _by_groups(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, plan: _Plan
) -> torch.Tensor:
    """One call for the texts of each length, over views: a CPU has no kernel for mixed lengths."""
    heads, total, _ = query.shape
    out = query.new_empty((total, heads, value.shape[2]))
    for group in segments.groups:
        stop = group.start + group.count * group.length
        q, k, v = (_texts(t[:, group.start : stop], group) for t in (query, key, value))
        mask = None
        if plan.window is not None and group.length > plan.window:
            mask = _band(group.length, plan.window, plan.causal, query.device)
            k, v = repeat_kv(k, heads // key.shape[0]), repeat_kv(v, heads // key.shape[0])
        own = scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            scale=plan.scale,
            is_causal=plan.causal and mask is None and group.length > 1,
            enable_gqa=plan.grouped and mask is None,
        )
        if len(segments.groups) == 1:
            return own.transpose(1, 2).reshape(out.shape)
        out[group.start : stop].view(group.count, group.length, heads, -1).copy_(own.transpose(1, 2))
    return out


def _by_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, plan: _Plan
) -> torch.Tensor:
    """One call for all texts: the card's kernel for variable lengths, which takes half types only."""
    from torch.nn.attention.varlen import varlen_attn

    before = -1 if plan.window is None else plan.window - 1
    longest = segments.groups[-1].length
    out: Any = varlen_attn(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        segments.bounds,
        segments.bounds,
        longest,
        longest,
        scale=plan.scale,
        window_size=(before, 0 if plan.causal else before),
        enable_gqa=plan.grouped,
    )
    packed: torch.Tensor = out
    return packed


def _jagged(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, plan: _Plan
) -> torch.Tensor:
    """One call for all texts in float32, which takes nested tensors, and those no window."""
    shortest, longest = segments.groups[0].length, segments.groups[-1].length
    if plan.window is not None and longest > plan.window:
        raise NotImplementedError("packed attention in this type has no window")
    if plan.grouped:
        key, value = (t.repeat_interleave(query.shape[0] // t.shape[0], dim=0) for t in (key, value))
    offsets = segments.bounds.long()
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            t.transpose(0, 1).contiguous(), offsets, min_seqlen=shortest, max_seqlen=longest
        ).transpose(1, 2)
        for t in (query, key, value)
    )
    own = scaled_dot_product_attention(q, k, v, scale=plan.scale, is_causal=plan.causal)
    values: torch.Tensor = own.transpose(1, 2).values()
    return values


def _texts(row: torch.Tensor, group: Group) -> torch.Tensor:
    """(heads, tokens, size) as a view of shape (texts, heads, length, size)."""
    return row.view(row.shape[0], group.count, group.length, row.shape[2]).transpose(0, 1)


def _band(length: int, window: int, causal: bool, device: torch.device) -> torch.Tensor:
    place = torch.arange(length, device=device)
    back = place[:, None] - place[None, :]
    return (back < window) & ((back >= 0) if causal else (back > -window))
