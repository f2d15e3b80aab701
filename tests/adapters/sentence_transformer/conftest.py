"""Tiny models of random weights in every layout the family serves: they prove plumbing, not quality."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    DistilBertConfig,
    Gemma3TextConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from catalog.schema import Spec
from engine.adapters.base import Adapter
from engine.adapters.sentence_transformer import SentenceTransformerAdapter, SentenceTransformerOptions
from engine.types import Outcome

LETTERS = "abcdefgh"


def wordpiece(folder: Path, *, types: bool = True, **more: Any) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS), *"[]<>/sclep|:"]
    words += [f"##{c}" for c in "clsepmask"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(dict.fromkeys(words))}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=32,
        model_input_names=["input_ids", *(["token_type_ids"] if types else []), "attention_mask"],
        **more,
    ).save_pretrained(folder)


def unigram(folder: Path) -> None:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(c, -6.0) for c in LETTERS + "<>/s"]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=32,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 60,
}


@pytest.fixture(scope="session")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of one tiny model of each layout, as the library saves them."""
    torch.manual_seed(11)
    root = tmp_path_factory.mktemp("layouts")
    left: dict[str, Any] = {"padding_side": "left", "truncation_side": "left"}
    for name, more in (("bert", {}), ("left", left)):
        BertModel(BertConfig(max_position_embeddings=32, **SIZES)).save_pretrained(root / f"{name}-base")
        wordpiece(root / f"{name}-base", **more)
    XLMRobertaModel(XLMRobertaConfig(max_position_embeddings=34, pad_token_id=1, **SIZES)).save_pretrained(
        root / "roberta-base"
    )
    unigram(root / "roberta-base")
    made: dict[str, Path] = {}

    def save(name: str, base: str, *modules: torch.nn.Module) -> None:
        model = SentenceTransformer(modules=[Transformer(str(root / f"{base}-base")), *modules], device="cpu")
        model.save(str(root / name), create_model_card=False)
        made[name] = root / name

    save("normalised", "bert", Pooling(32, "mean"), Normalize())
    save("raw", "bert", Pooling(32, "cls"))
    save("dense", "bert", Pooling(32, "mean"), Dense(32, 16))
    save("last", "left", Pooling(32, "lasttoken"), Normalize())
    save("skips", "bert", Pooling(32, "mean", include_prompt=False), Normalize())
    save("roberta", "roberta", Pooling(32, "mean"), Normalize())
    return made


DECODER: dict[str, Any] = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
"""Fewer heads of keys than of queries, as decoders have them."""

ARCHITECTURES: dict[str, tuple[Any, str]] = {
    "distilbert": (DistilBertConfig(dim=32, hidden_dim=64, n_layers=2, n_heads=4, vocab_size=60), "cls"),
    "mpnet": (MPNetConfig(**SIZES), "mean"),
    "modernbert": (
        ModernBertConfig(
            **SIZES, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, local_attention=8
        ),
        "mean",
    ),
    "qwen3": (Qwen3Config(**DECODER, bos_token_id=2, eos_token_id=3), "lasttoken"),
    "qwen3-window": (
        Qwen3Config(
            **DECODER, bos_token_id=2, eos_token_id=3, use_sliding_window=True, sliding_window=6, max_window_layers=1
        ),
        "mean",
    ),
    "gemma3": (
        Gemma3TextConfig(
            **DECODER,
            bos_token_id=2,
            eos_token_id=3,
            use_bidirectional_attention=True,
            sliding_window=12,
            query_pre_attn_scalar=8,
            layer_types=["sliding_attention", "full_attention"],
        ),
        "mean",
    ),
    "bert-weighted": (BertConfig(max_position_embeddings=32, **SIZES), "weightedmean"),
    "bert-max": (BertConfig(max_position_embeddings=32, **SIZES), "max"),
}
"""A config and a way of pooling for each architecture whose padded and packed vectors are compared."""


@pytest.fixture(scope="session", params=sorted(ARCHITECTURES))
def architecture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of an architecture and the folder of a tiny model of it."""
    config, pooling = ARCHITECTURES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(12)
    model = AutoModel.from_config(config)
    for parameter in model.parameters():
        # Weights as they begin are so small that attention changes little and a fault would not show.
        parameter.data.normal_(0.0, 0.3)
    model.save_pretrained(folder / "base")
    wordpiece(folder / "base", types=request.param.startswith("bert"))
    modules = [Transformer(str(folder / "base")), Pooling(32, pooling), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "whole"), create_model_card=False)
    return request.param, folder / "whole"


@pytest.fixture(scope="session")
def vector(read_vector: Callable[[Outcome], NDArray[np.float32]]) -> Callable[[Outcome], NDArray[np.float32]]:
    """The vector of an outcome; these tests are of one family, which gives vectors."""
    return read_vector


def spec_of(dims: int, max_length: int) -> Spec:
    return Spec.model_validate(
        {
            "id": "tests/tiny-random",
            "family": "sentence_transformer",
            "source": {"path": "/given/to/the/adapter"},
            "tasks": {"encode": {"dims": dims, "prompts": {"query": "ab: ", "long": "a b c d: "}}},
            "parameters": 1,
            "max_length": max_length,
        }
    )


@pytest.fixture(scope="session")
def tiny(device: str) -> Callable[..., SentenceTransformerAdapter]:
    """An adapter of a folder, not loaded, under a spec of some dims and max_length and some load options."""

    def tiny_adapter(
        folder: Path | None, dims: int = 32, max_length: int = 32, **options: Any
    ) -> SentenceTransformerAdapter:
        parsed = SentenceTransformerOptions.model_validate(options)
        return SentenceTransformerAdapter(spec_of(dims, max_length), parsed, folder, device)

    return tiny_adapter


@pytest.fixture(scope="session")
def load(layouts: dict[str, Path], tiny: Callable[..., SentenceTransformerAdapter]) -> Callable[..., Adapter]:
    """A loaded adapter of a layout, loaded once for all tests."""
    loaded: dict[tuple[object, ...], Adapter] = {}

    def load_layout(name: str, **facts: int) -> Adapter:
        key = (name, *sorted(facts.items()))
        if key not in loaded:
            adapter = tiny(layouts[name], **facts)
            adapter.load()
            loaded[key] = adapter
        return loaded[key]

    return load_layout
