"""What the contract does not say of this family's vectors: layouts, prompts, literals, cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from catalog.options import EncodeOptions, OutputDtype
from catalog.tokenizer import Tokens
from engine.adapters.base import Adapter
from engine.embedder import Embedder
from engine.errors import OutOfMemory, TextTooLong
from engine.types import Outcome, Output

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]

TEXTS = ["ab", "a b c d e f g h", "cab bag", "bead face"]


def library(folder: Path, texts: list[str], **more: Any) -> NDArray[np.float32]:
    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(texts, **more), dtype=np.float32)


@pytest.mark.parametrize("name", ["normalised", "last", "roberta", "skips"])
def test_every_layout_equals_the_library(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str
) -> None:
    got = np.stack([vector(outcome) for outcome in run(load(name), TEXTS)])
    assert np.abs(got - library(layouts[name], TEXTS)).max() < 1e-5


@pytest.mark.parametrize(("name", "dims"), [("raw", 32), ("dense", 16)])
def test_a_model_that_does_not_normalise_is_raw_on_request(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str, dims: int
) -> None:
    got = np.stack([vector(o) for o in run(load(name, dims=dims), TEXTS, EncodeOptions(normalize=False))])
    assert np.abs(got - library(layouts[name], TEXTS)).max() < 1e-5


def test_a_model_that_normalises_gives_raw_vectors_too(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector
) -> None:
    model = SentenceTransformer(str(layouts["normalised"]), device="cpu")
    with torch.inference_mode():
        features = model[1](model[0](model.preprocess(TEXTS)))
    expected = features["sentence_embedding"].numpy()
    got = np.stack([vector(o) for o in run(load("normalised"), TEXTS, EncodeOptions(normalize=False))])
    assert np.abs(got - expected).max() < 1e-5
    assert np.abs(np.linalg.norm(got, axis=1) - 1).min() > 1e-3


def test_an_instruction_is_put_before_the_text(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector
) -> None:
    got = np.stack([vector(o) for o in run(load("normalised"), TEXTS, EncodeOptions(instruction="bad cab: "))])
    assert np.abs(got - library(layouts["normalised"], TEXTS, prompt="bad cab: ")).max() < 1e-5


@pytest.mark.parametrize("name", ["normalised", "skips"])
def test_items_of_one_batch_have_their_own_prompts(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str
) -> None:
    options = [
        EncodeOptions(prompt="query"),
        EncodeOptions(),
        EncodeOptions(prompt="long"),
        EncodeOptions(prompt="query"),
    ]
    got = [vector(outcome) for outcome in run(load(name), TEXTS, options)]
    for text, own, vec in zip(TEXTS, options, got, strict=True):
        prompt = {"query": "ab: ", "long": "a b c d: ", None: None}[own.prompt]
        assert np.abs(vec - library(layouts[name], [text], prompt=prompt)[0]).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("normalised", "[CLS] [SEP]"),
        ("normalised", "[SEP][SEP][SEP]"),
        ("normalised", "a [MASK] b"),
        ("last", "[PAD] [SEP]"),
        ("skips", "[SEP] a"),
        ("roberta", "a </s> b"),
        ("roberta", "<s></s></s>"),
    ],
)
@pytest.mark.parametrize(
    "options", [EncodeOptions(), EncodeOptions(instruction="[SEP] </s> "), EncodeOptions(prompt="long")]
)
def test_no_control_token_reaches_the_model_but_its_template(
    load: Callable[..., Adapter],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    options: EncodeOptions,
) -> None:
    control = {0, 1, 2} if name == "roberta" else {0, 2, 3, 4}
    adapter = load(name)
    embed = Embedder.embed
    fed: list[Tokens] = []

    def watch(self: Embedder, rows: Sequence[Tokens], device: str, prompt: int = 0) -> NDArray[np.float32]:
        fed.extend(rows)
        return embed(self, rows, device, prompt)

    monkeypatch.setattr(Embedder, "embed", watch)
    outcomes = run(adapter, [text, "a" + text + "b " * 40], options)
    assert all(isinstance(outcome, Output) for outcome in outcomes)
    assert len(fed) == 2
    for row in fed:
        assert control.isdisjoint(row.ids[1:-1])


def test_a_cut_text_tells_how_long_it_was(load: Callable[..., Adapter], run: Run) -> None:
    outcome = run(load("normalised"), ["a " * 100])[0]
    assert isinstance(outcome, Output)
    assert (outcome.tokens, outcome.truncated) == (102, True)


def test_a_refusal_for_length_gives_both_counts(load: Callable[..., Adapter], run: Run) -> None:
    outcome = run(load("normalised"), ["a " * 100], EncodeOptions(truncate=False))[0]
    assert isinstance(outcome, TextTooLong)
    assert "102" in outcome.message
    assert "32" in outcome.message


@pytest.mark.parametrize("name", ["normalised", "last", "roberta"])
def test_a_cut_text_equals_the_librarys_cut(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str
) -> None:
    text = "a b c d e f g h " * 20
    got = vector(run(load(name), [text])[0])
    assert np.abs(got - library(layouts[name], [text])[0]).max() < 1e-5


def test_small_integers_keep_the_direction(load: Callable[..., Adapter], run: Run, vector: Vector) -> None:
    adapter = load("normalised")
    exact = vector(run(adapter, ["cab bag"])[0])
    outcome = run(adapter, ["cab bag"], EncodeOptions(output_dtype=OutputDtype.INT8))[0]
    assert isinstance(outcome, Output)
    small = np.frombuffer(outcome.fields["dense"]["values"], dtype=np.int8).astype(np.float32)
    assert float(exact @ small) / float(np.linalg.norm(small)) > 0.999


def test_a_batch_that_does_not_fit_is_out_of_memory(
    load: Callable[..., Adapter], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = load("normalised")

    def embed(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Embedder, "embed", embed)
    with pytest.raises(OutOfMemory, match="2 texts"):
        run(adapter, ["a", "b"])
