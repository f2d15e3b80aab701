"""An embedder in the layout of EmbeddingGemma: attention both ways, mean pooling, two projections, a prompt a side.

Its weights are random, and wide enough that texts differ.
"""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.nn import Identity
from transformers import Gemma3TextConfig, Gemma3TextModel

from tests.small.bpe import tokenizer

LONGEST = 128
PROMPTS = {
    "query": "task: search result | query: ",
    "document": "title: none | text: ",
    "Clustering": "task: clustering | query: ",
}


def build(folder: Path) -> None:
    torch.manual_seed(22)
    words = tokenizer(longest=LONGEST)
    config = Gemma3TextConfig(
        vocab_size=len(words),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=12,
        max_position_embeddings=LONGEST,
        sliding_window=16,
        query_pre_attn_scalar=12,
        layer_types=["sliding_attention", "full_attention"],
        use_bidirectional_attention=True,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    model = Gemma3TextModel(config)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.3)
    model.save_pretrained(folder / "base")
    words.save_pretrained(folder / "base")
    whole = SentenceTransformer(
        modules=[
            Transformer(str(folder / "base")),
            Pooling(48, "mean"),
            Dense(48, 96, bias=False, activation_function=Identity()),
            Dense(96, 48, bias=False, activation_function=Identity()),
            Normalize(),
        ],
        prompts=PROMPTS,
        device="cpu",
    )
    whole.save(str(folder), create_model_card=False)
