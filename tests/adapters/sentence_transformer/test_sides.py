"""Queries and documents: which prompt comes before which, as the library's own two calls have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from catalog.options import EncodeOptions
from catalog.schema import Spec
from engine.adapters.sentence_transformer import SentenceTransformerAdapter, SentenceTransformerOptions
from engine.types import Outcome, Output
from tests.small import folder

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]

TEXTS = ["what floats?", "a ship", "a much longer text about harbours and the weather"]


def adapter_of(files: Path, device: str, **prompts: str) -> SentenceTransformerAdapter:
    made = {
        "id": "random/prompted",
        "family": "sentence_transformer",
        "tasks": {"encode": {"dims": 48, "prompts": prompts}},
        "parameters": 1,
        "max_length": 128,
    }
    adapter = SentenceTransformerAdapter(Spec.model_validate(made), SentenceTransformerOptions(), files, device)
    adapter.load()
    return adapter


@pytest.fixture(scope="module")
def gemma() -> Path:
    return folder("gemma_embedding")


def test_both_sides_of_one_batch_equal_the_librarys_two_calls(
    gemma: Path, device: str, run: Run, vector: Vector
) -> None:
    library = SentenceTransformer(str(gemma), device=device)
    sides = [EncodeOptions(is_query=True)] * 3 + [EncodeOptions()] * 3
    found = np.stack([vector(outcome) for outcome in run(adapter_of(gemma, device), TEXTS * 2, sides)])
    assert np.abs(found[:3] - library.encode_query(TEXTS)).max() < 2e-5
    assert np.abs(found[3:] - library.encode_document(TEXTS)).max() < 2e-5
    assert np.abs(found[:3] - found[3:]).max() > 0.01


def test_prompts_of_the_yaml_stand_in_place_of_those_in_the_files(
    gemma: Path, device: str, run: Run, vector: Vector
) -> None:
    library = SentenceTransformer(str(gemma), device=device)
    adapter = adapter_of(gemma, device, query="find: ", passage="hold: ", document="")
    found = run(adapter, TEXTS[:2], [EncodeOptions(is_query=True), EncodeOptions()])
    expected = library.encode(TEXTS[0], prompt="find: "), library.encode(TEXTS[1])
    for outcome, one in zip(found, expected, strict=True):
        assert np.abs(vector(outcome) - one).max() < 2e-5


def test_an_instruction_stands_in_place_of_a_sides_prompt_and_is_counted(
    gemma: Path, device: str, run: Run, vector: Vector
) -> None:
    library = SentenceTransformer(str(gemma), device=device)
    adapter = adapter_of(gemma, device)
    instruction = "Instruct: find ships\nQuery: "
    outcome = run(adapter, TEXTS[:1], EncodeOptions(is_query=True, instruction=instruction))[0]
    assert np.abs(vector(outcome) - library.encode(TEXTS[0], prompt=instruction)).max() < 2e-5
    assert isinstance(outcome, Output)
    assert outcome.tokens == len(library.tokenizer(instruction + TEXTS[0])["input_ids"])
