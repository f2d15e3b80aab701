"""What a model is able to do is found out at its load, whatever its name says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from engine.generation.attention import SequenceCache
from engine.generation.decoding import Feed, LibraryDecoder, Memory, PackedDecoder, try_packed, try_pieces

WORDS = list(range(10, 90))
SMALL: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def made(model: Any) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.3)
    return model.eval()


def mistral(**more: Any) -> Any:
    return made(MistralForCausalLM(MistralConfig(**SMALL, **more)))


def gemma2() -> Any:
    model = Gemma2ForCausalLM(Gemma2Config(**SMALL))
    # The only way of the library's that keeps its scores within bounds.
    model.set_attn_implementation("eager")
    return made(model)


def mamba() -> Any:
    return made(MambaForCausalLM(MambaConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, state_size=4)))


def gpt2() -> Any:
    return made(GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=128)))


@pytest.mark.parametrize(
    ("make", "packed"),
    [
        (lambda: mistral(sliding_window=None), True),
        (lambda: mistral(sliding_window=8), True),
        (gpt2, True),
        (gemma2, False),
        (mamba, False),
        (
            lambda: mistral(
                sliding_window=None,
                rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
                max_position_embeddings=64,
            ),
            False,
        ),
    ],
    ids=["plain", "window", "learned-places", "capped-scores", "state", "places-by-length"],
)
def test_sequences_share_a_row_only_where_the_answers_stay(make: Callable[[], Any], packed: bool) -> None:
    torch.manual_seed(1)
    model = make()
    before = model.config._attn_implementation
    found = try_packed(model, "cpu", 64, WORDS)
    assert isinstance(found, PackedDecoder) is packed
    assert (model.config._attn_implementation == before) is not packed
    decoder = found or try_pieces(model, "cpu", WORDS)
    texts = [WORDS[:9], WORDS[20:23], WORDS[40:41]]
    memories = [Memory(SequenceCache(20)) for _ in texts]
    decoder.feed([Feed(memory, text) for memory, text in zip(memories, texts, strict=True)])
    with torch.inference_mode():
        logits = decoder.feed([Feed(memory, [WORDS[5]]) for memory in memories])
        torch.manual_seed(1)
        fresh = make()
        for text, own in zip(texts, logits, strict=True):
            assert own is not None
            expected = fresh(input_ids=torch.tensor([[*text, WORDS[5]]])).logits[0, -1]
            assert torch.allclose(own, expected, atol=1e-4)


def test_a_cache_that_goes_on_with_a_prompt_takes_it_in_pieces() -> None:
    pieces = try_pieces(gemma2(), "cpu", WORDS)
    assert isinstance(pieces, LibraryDecoder)
    assert not pieces.whole
