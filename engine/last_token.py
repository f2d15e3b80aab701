"""What a decoder says after the last token of each row: the logits of a few answers, or of a head of its own.

The head is computed for these tokens alone and, of a vocabulary, for the answers alone. Rows are padded behind their
ends, which a causal model never looks at, or packed one after another. Only calls import torch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from catalog.tokenizer import Tokens
from engine.errors import LoadFailed, LoadReason
from engine.failures import out_of_memory
from engine.packing import Layout, pack, pad

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_LAYOUT = Layout(type_ids=False)
_EXACT, _HALF = 1e-3, 5e-2
"""How far two ways of computing may differ in float32 and in half types, in parts of the largest logit."""

Values = NDArray[np.float32]


def last_logits(
    module: torch.nn.Module, rows: Sequence[Tokens], answers: Sequence[int], device: str, *, packed: bool
) -> Values:
    """One pass: for each row the logits of the answers, or those of the model's own head if there are no answers."""
    import torch

    with torch.inference_mode():
        if packed and any(len(row.ids) != len(rows[0].ids) for row in rows):
            last = _packed(module, rows, device)
        else:
            ids = torch.from_numpy(pad(rows, _LAYOUT)["input_ids"]).to(device)
            hidden = _inner(module)(input_ids=ids, use_cache=False).last_hidden_state
            ends = torch.tensor([len(row.ids) - 1 for row in rows], device=device)
            last = hidden[torch.arange(len(rows), device=device), ends]
        return np.asarray(_head(module, last, answers).float().cpu().numpy(), dtype=np.float32)


def try_packed(name: str, module: torch.nn.Module, rows: Sequence[Tokens], answers: Sequence[int], device: str) -> bool:
    """Whether the model runs without padding; it is left set to. The rows are of mixed lengths.

    Raises LoadFailed where not even the padded way gives what the model itself does: it does something after its last
    layer that is not known here.
    """
    from engine.attention import IMPLEMENTATION, register, window

    model: Any = module
    padded = last_logits(module, rows, answers, device, packed=False)
    if not _near(_own_call(model, rows, answers, device), padded, model):
        message = f"{name} computes its answers in a way that this family does not know."
        raise LoadFailed(message, LoadReason.CONFIG)
    if not model.is_backend_compatible() or window(module) is not None:
        return False
    register()
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(IMPLEMENTATION)
        if _near(padded, last_logits(module, rows, answers, device, packed=True), model):
            return True
        log.info("%s gives other scores without padding, so it is padded", name)
    except Exception as error:
        if out_of_memory(error):
            raise
        log.info("%s does not run without padding, so it is padded: %r", name, error)
    model.set_attn_implementation(before)
    return False


def _packed(module: torch.nn.Module, rows: Sequence[Tokens], device: str) -> torch.Tensor:
    import torch

    from engine.attention import Segments, within

    packed = pack(rows, _LAYOUT)
    bounds = torch.from_numpy(packed.bounds).to(device)
    arrays = {name: torch.from_numpy(packed.arrays[name]).to(device) for name in ("input_ids", "position_ids")}
    with within(Segments(bounds, packed.groups)):
        hidden = _inner(module)(**arrays, use_cache=False).last_hidden_state[0]
    ends = hidden[bounds[1:].long() - 1]
    last = torch.empty_like(ends)
    last[torch.tensor(packed.order, device=device)] = ends
    return last


def _inner(module: torch.nn.Module) -> Any:
    """The decoder without its head."""
    return getattr(module, str(module.base_model_prefix))


def _head(module: Any, last: torch.Tensor, answers: Sequence[int]) -> torch.Tensor:
    import torch

    if not answers:
        logits: torch.Tensor = module.score(last)
        return logits
    head = module.get_output_embeddings()
    wanted = list(answers)
    bias = None if head.bias is None else head.bias[wanted]
    logits = torch.nn.functional.linear(last, head.weight[wanted], bias)
    most = getattr(module.config, "final_logit_softcapping", None)
    return logits if most is None else torch.tanh(logits / most) * most


def _own_call(model: Any, rows: Sequence[Tokens], answers: Sequence[int], device: str) -> Values:
    """What the library's own call gives for each row alone."""
    import torch

    found = []
    with torch.inference_mode():
        for row in rows:
            logits = model(input_ids=torch.tensor([row.ids], device=device)).logits
            found.append((logits[0, -1, list(answers)] if answers else logits[0]).float().cpu().numpy())
    return np.stack(found)


def _near(one: Values, other: Values, model: Any) -> bool:
    part = _EXACT if next(model.parameters()).itemsize == 4 else _HALF
    return bool(np.abs(one - other).max() <= part * max(1.0, float(np.abs(one).max())))
