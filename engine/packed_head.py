"""A model with a head whose layers compute packed rows: without padding, for batches of mixed lengths.

The model's own call is made with padded arrays, since its head may look at any of them. Only its backbone is given the
packed row instead, and what comes out of it is laid out as if it had been padded. Which row it is, is known to the
calling thread alone, so threads share a model. Only calls import torch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from catalog.tokenizer import Tokens
from engine.failures import out_of_memory
from engine.packing import Layout, pack, pad, trial

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_LONGEST_TRIAL = 1024
"""Tokens of the longest text that a load tries. A model whose window is wider is padded."""
_EXACT, _HALF = 1e-4, 3e-2
"""How far packed and padded logits may differ in float32 and in half types, in parts of the largest."""
_REPLACED = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


@dataclass(frozen=True, slots=True)
class _Row:
    """The backbone's arrays for a packed row, and the mask of the padded layout that its head expects."""

    arrays: dict[str, torch.Tensor]
    mask: torch.Tensor


class _Here(threading.local):
    row: _Row | None = None


_here = _Here()


def packed_logits(module: torch.nn.Module, rows: Sequence[Tokens], layout: Layout, device: str) -> torch.Tensor:
    """The logits of a pass, as its padded arrays would give them: padding stands behind each text."""
    import torch

    from engine.attention import Segments, within

    packed = pack(rows, layout)
    padded = {
        name: torch.from_numpy(array).to(device)
        for name, array in pad([rows[place] for place in packed.order], layout).items()
    }
    arrays = {name: torch.from_numpy(array).to(device) for name, array in packed.arrays.items() if name in _REPLACED}
    segments = Segments(torch.from_numpy(packed.bounds).to(device), packed.groups)
    with within(segments), _of_row(_Row(arrays, padded["attention_mask"].bool())):
        found = module(**padded).logits
    logits: torch.Tensor = torch.empty_like(found)
    logits[torch.tensor(packed.order, device=device)] = found
    return logits


def try_packed(module: torch.nn.Module, layout: Layout, one: Tokens, words: Sequence[int], longest: int) -> bool:
    """Whether the model gives the same logits packed as padded; it is left set to pack if so. Raises OutOfMemory.

    `one` is a text as the tokenizer reads it, `words` are ids of plain tokens, `longest` is how many the model reads.
    """
    import torch

    from engine.attention import IMPLEMENTATION, register, window

    model: Any = module
    seen = window(module)
    if layout.pad_left or not model.is_backend_compatible() or (seen is not None and _LONGEST_TRIAL <= seen < longest):
        return False
    device = str(next(module.parameters()).device)
    lengths = [min(longest, length) for length in (6, 23, 6, 3, 40, *([] if seen is None else [seen + 9]))]
    rows = trial(one, words, lengths)
    arrays = {name: torch.from_numpy(array).to(device) for name, array in pad(rows, layout).items()}
    before = model.config._attn_implementation
    backbone = getattr(model, str(model.base_model_prefix))
    hooks = []
    register()
    try:
        with torch.inference_mode():
            padded = _real(model(**arrays).logits, lengths)
            hooks += [
                backbone.register_forward_pre_hook(_enter, with_kwargs=True),
                backbone.register_forward_hook(_leave),
            ]
            model.set_attn_implementation(IMPLEMENTATION)
            packed = _real(packed_logits(module, rows, layout, device), lengths)
        part = _EXACT if next(model.parameters()).itemsize == 4 else _HALF
        if np.abs(padded - packed).max() <= part * max(1.0, float(np.abs(padded).max())):
            return True
        log.info("%s gives other logits without padding, so it is padded", type(model).__name__)
    except Exception as error:
        if out_of_memory(error):
            raise
        log.info("%s does not run without padding, so it is padded: %r", type(model).__name__, error)
    for hook in hooks:
        hook.remove()
    model.set_attn_implementation(before)
    return False


@contextmanager
def _of_row(row: _Row) -> Iterator[None]:
    _here.row = row
    try:
        yield
    finally:
        _here.row = None


def _enter(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The packed row in place of the padded arrays that the model's call brings."""
    row = _here.row
    if row is None:
        return None
    return (), {name: value for name, value in kwargs.items() if name not in _REPLACED} | row.arrays


def _leave(module: Any, args: tuple[Any, ...], output: Any) -> Any:
    """What the backbone made of the row, each text in a line of its own; a pooler looks at these."""
    row = _here.row
    if row is None:
        return None
    hidden = output.last_hidden_state[0]
    lines = hidden.new_zeros((*row.mask.shape, hidden.shape[-1]))
    lines[row.mask] = hidden
    output.last_hidden_state = lines
    if getattr(output, "pooler_output", None) is not None:
        output.pooler_output = module.pooler(lines)
    return output


def _real(logits: torch.Tensor, lengths: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The logits of texts or of their tokens, without those of padding, in one row."""
    values = logits.float().cpu().numpy()
    rows = values if values.ndim == 2 else [row[:size] for row, size in zip(values, lengths, strict=True)]
    return np.concatenate([np.asarray(row, dtype=np.float32).ravel() for row in rows])
