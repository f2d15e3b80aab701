"""A causal embedder in the layout of Qwen3-Embedding: padded on the left, the last token's vector, queries prompted.

Its weights are random, and wide enough that texts differ.
"""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import processors
from transformers import Qwen3Config, Qwen3Model

from tests.small.bpe import EOS, tokenizer

LONGEST = 128
QUERY = "Instruct: Given a question, find the passages that answer it\nQuery:"


def build(folder: Path) -> None:
    torch.manual_seed(21)
    words = tokenizer(longest=LONGEST, template=False)
    end = words.convert_tokens_to_ids(EOS)
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(f"$A {EOS}", special_tokens=[(EOS, end)])
    words.padding_side = "left"
    config = Qwen3Config(
        vocab_size=len(words),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        max_position_embeddings=LONGEST,
        pad_token_id=words.pad_token_id,
        bos_token_id=None,
        eos_token_id=end,
    )
    model = Qwen3Model(config)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.3)
    model.save_pretrained(folder / "base")
    words.save_pretrained(folder / "base")
    whole = SentenceTransformer(
        modules=[Transformer(str(folder / "base")), Pooling(48, "lasttoken"), Normalize()],
        prompts={"query": QUERY, "document": ""},
        device="cpu",
    )
    whole.save(str(folder), create_model_card=False)
