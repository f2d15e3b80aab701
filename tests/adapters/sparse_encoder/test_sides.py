"""What the contract does not say of sparse vectors: both sides in one batch, what is cut, how they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import SpladePooling

from catalog.options import EncodeOptions, OutputDtype
from catalog.schema import Spec
from engine.adapters.sparse_encoder import SparseEncoderAdapter, pooled
from engine.errors import LoadFailed, LoadReason, TextTooLong
from engine.text_encoder import EncoderOptions
from engine.types import Outcome, Output
from tests.small import folder, package

Run = Callable[..., list[Outcome]]

TEXTS = ["what lowers blood pressure?", "A drug that lowers blood pressure.", "ships"]


def adapter_of(files: Path, device: str, dims: int = 30522, longest: int = 512) -> SparseEncoderAdapter:
    made = {
        "id": "tests/sparse",
        "family": "sparse_encoder",
        "tasks": {"encode": {"sparse_dims": dims, "outputs": ["sparse"], "prompts": {"query": "find: "}}},
        "parameters": 1,
        "max_length": longest,
    }
    return SparseEncoderAdapter(Spec.model_validate(made), EncoderOptions(), files, device)


@pytest.fixture(scope="module")
def free(device: str) -> Iterator[SparseEncoderAdapter]:
    adapter = adapter_of(folder("inference_free"), device)
    adapter.load()
    yield adapter
    adapter.unload()


def whole(outcome: Outcome, written: str = "<f4") -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    assert isinstance(outcome, Output), outcome
    vector = outcome.fields["sparse"]
    indices = np.frombuffer(vector["indices"], "<i4")
    assert (np.diff(indices) > 0).all()
    found = np.zeros(vector["dims"], dtype=np.float32)
    found[indices] = np.frombuffer(vector["values"], written)
    return found


def test_queries_and_documents_of_one_batch_go_their_own_ways(
    free: SparseEncoderAdapter, device: str, run: Run
) -> None:
    library = SparseEncoder(str(free.files), device=device)
    sides = [EncodeOptions(is_query=True), EncodeOptions(), EncodeOptions(is_query=True)]
    found = [whole(outcome) for outcome in run(free, TEXTS, sides)]
    for vector, text, own in zip(found, TEXTS, sides, strict=True):
        if own.is_query:
            expected = library.encode_query(text, prompt="find: ", convert_to_sparse_tensor=False)
        else:
            expected = library.encode_document(text, convert_to_sparse_tensor=False)
        assert np.abs(vector - expected.cpu().numpy()).max() < 1e-5
    assert found[0] @ found[1] > found[2] @ found[1]


def test_half_precision_has_the_same_weights(free: SparseEncoderAdapter, run: Run) -> None:
    full, half = run(free, [TEXTS[1]] * 2, [EncodeOptions(), EncodeOptions(output_dtype=OutputDtype.FLOAT16)])
    assert np.abs(whole(full) - whole(half, "<f2")).max() < 2e-3


@pytest.mark.parametrize("is_query", [True, False])
def test_a_long_text_is_cut_and_marked_or_refused(free: SparseEncoderAdapter, run: Run, is_query: bool) -> None:
    text = "ship " * 600
    cut, refused = run(
        free, [text] * 2, [EncodeOptions(is_query=is_query), EncodeOptions(is_query=is_query, truncate=False)]
    )
    assert isinstance(cut, Output)
    # A query has a prompt of two tokens here, and no control tokens in the table's way.
    assert (cut.tokens, cut.truncated) == (602, True)
    assert isinstance(refused, TextTooLong)


def test_a_model_that_is_not_what_its_yaml_says_is_refused(device: str) -> None:
    for adapter in (
        adapter_of(package("cognition", "model"), device, dims=100),
        adapter_of(package("cognition", "model"), device, longest=600),
    ):
        with pytest.raises(LoadFailed, match="its YAML says") as refused:
            adapter.load()
        assert refused.value.reason is LoadReason.CONFIG
        assert not adapter.held()


@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_pooling_before_the_activation_equals_the_librarys_after_it(
    activation: Literal["relu", "log1p_relu"],
) -> None:
    logits = torch.randn(3, 5, 40, generator=torch.Generator().manual_seed(5)) * 3
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
    library = SpladePooling("max", activation_function=activation).eval()
    expected = library({"token_embeddings": logits.clone(), "attention_mask": mask})["sentence_embedding"]
    found = pooled(logits, mask, twice=activation == "log1p_relu")
    assert torch.equal(found, expected)
