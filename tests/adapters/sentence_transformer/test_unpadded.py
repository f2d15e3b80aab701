"""Batches without padding: which models take them, and that nobody can tell by the vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from transformers import MistralConfig, MistralModel

import engine.attention
import engine.embedder
from catalog.options import EncodeOptions
from engine.adapters.sentence_transformer import SentenceTransformerAdapter
from engine.errors import LoadFailed, LoadReason
from engine.packing import Layout, pack
from engine.pretrained import read_embedder
from engine.types import Outcome

Run = Callable[..., list[Outcome]]
Tiny = Callable[..., SentenceTransformerAdapter]
Vector = Callable[[Outcome], NDArray[np.float32]]

PADDED = {"mpnet"}
"""Architectures whose attention adds something to its scores that packing cannot."""
TEXTS = ["ab", "cab bag", "a b c d e f g h", "g a c e", "bead face " * 3, "h g f e d c b a", "b " * 40]


def library(folder: Path, texts: list[str]) -> NDArray[np.float32]:
    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(texts), dtype=np.float32)


def test_every_architecture_gives_the_librarys_vectors(
    architecture: tuple[str, Path], tiny: Tiny, run: Run, vector: Vector
) -> None:
    name, folder = architecture
    adapter = tiny(folder)
    adapter.load()
    got = np.stack([vector(outcome) for outcome in run(adapter, TEXTS)])
    assert np.abs(got - library(folder, TEXTS)).max() < 2e-5
    assert adapter.unpadded is (name not in PADDED)


@pytest.mark.parametrize("name", ["normalised", "raw", "dense", "skips", "roberta"])
def test_every_layout_runs_unpadded(layouts: dict[str, Path], tiny: Tiny, name: str) -> None:
    adapter = tiny(layouts[name], dims=16 if name == "dense" else 32, padding="never")
    adapter.load()
    assert adapter.unpadded


def test_a_model_whose_padding_moves_its_positions_keeps_it(layouts: dict[str, Path], tiny: Tiny) -> None:
    # Padded on the left, a BERT counts a text's positions from where the padding begins.
    adapter = tiny(layouts["last"])
    adapter.load()
    assert not adapter.unpadded


def test_mixed_lengths_are_not_padded(layouts: dict[str, Path], tiny: Tiny, run: Run) -> None:
    adapter = tiny(layouts["normalised"])
    adapter.load()
    shapes: list[Sequence[int]] = []
    embedder = adapter._embedder
    assert embedder is not None
    first: Any = embedder.steps[0]
    first.register_forward_pre_hook(lambda _, given: shapes.append(given[0]["input_ids"].shape))
    run(adapter, ["ab", "a b c d"])
    assert shapes == [(1, 4 + 6)]


def test_a_model_that_must_not_be_unpadded_is_padded(
    layouts: dict[str, Path], tiny: Tiny, run: Run, vector: Vector
) -> None:
    adapter, padded = tiny(layouts["normalised"]), tiny(layouts["normalised"], padding="always")
    adapter.load()
    padded.load()
    assert (adapter.unpadded, padded.unpadded) == (True, False)
    for one, other in zip(run(adapter, TEXTS), run(padded, TEXTS), strict=True):
        assert np.abs(vector(one) - vector(other)).max() < 1e-5


def _whole_row(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
    """Attention that looks over the borders of texts."""
    query, key, value = args[1:4]
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    return out.transpose(1, 2), None


def _raises(*args: Any, **kwargs: Any) -> None:
    raise NotImplementedError("no such kernel")


@pytest.mark.parametrize("attend", [_whole_row, _raises])
def test_a_model_that_gives_other_vectors_unpadded_stays_padded(
    layouts: dict[str, Path],
    tiny: Tiny,
    run: Run,
    vector: Vector,
    monkeypatch: pytest.MonkeyPatch,
    attend: Callable[..., Any],
) -> None:
    monkeypatch.setattr(engine.attention, "attend", attend)
    adapter = tiny(layouts["normalised"])
    adapter.load()
    assert not adapter.unpadded
    got = np.stack([vector(outcome) for outcome in run(adapter, TEXTS)])
    assert np.abs(got - library(layouts["normalised"], TEXTS)).max() < 1e-5
    with pytest.raises(LoadFailed, match="padding: never") as raised:
        tiny(layouts["normalised"], padding="never").load()
    assert raised.value.reason is LoadReason.CONFIG
    monkeypatch.undo()
    engine.attention.register()


def test_positions_that_begin_wrong_are_found_out(
    layouts: dict[str, Path], tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.embedder, "pack", lambda rows, layout: pack(rows, Layout(type_ids=layout.type_ids)))
    adapter = tiny(layouts["roberta"])
    adapter.load()
    assert not adapter.unpadded


@pytest.mark.parametrize("name", ["normalised", "skips", "roberta"])
def test_a_text_has_one_vector_whatever_lies_beside_it(
    layouts: dict[str, Path], tiny: Tiny, run: Run, vector: Vector, name: str
) -> None:
    adapter = tiny(layouts[name])
    adapter.load()
    options = EncodeOptions(prompt="query")
    together = [vector(outcome) for outcome in run(adapter, TEXTS, options)]
    alone = [vector(run(adapter, [text], options)[0]) for text in TEXTS]
    assert max(np.abs(a - b).max() for a, b in zip(together, alone, strict=True)) < 1e-5


def test_a_window_that_only_the_config_knows_is_seen() -> None:
    # Mistral's layers read it from there at every call.
    for size in (8, None):
        model = MistralModel(
            MistralConfig(
                sliding_window=size,
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=4,
                num_key_value_heads=4,
                intermediate_size=64,
                vocab_size=60,
            )
        )
        assert engine.attention.window(model) == size


def test_a_model_that_gives_all_texts_one_vector_is_padded(
    layouts: dict[str, Path], tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def constant(*args: Any) -> engine.embedder.Embedder:
        embedder = read_embedder(*args)
        for name, weights in embedder.model.named_parameters():
            if "word_embeddings" in name or "position_embeddings" in name:
                weights.fill_(1.0)
        return embedder

    monkeypatch.setattr("engine.adapters.sentence_transformer.read_embedder", constant)
    adapter = tiny(layouts["normalised"])
    adapter.load()
    assert not adapter.unpadded
