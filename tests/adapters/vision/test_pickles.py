"""Models of images whose weights are in a pickle."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from catalog.schema import EncodeFacts, Source, Spec, Tasks
from catalog.terms import Verb
from engine.adapters.vision_text import VisionTextAdapter
from engine.errors import LoadFailed
from engine.types import Outcome, Output
from tests.small import folder

Ask = Callable[..., list[Outcome]]


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    copy = tmp_path / "clip"
    shutil.copytree(folder("clip"), copy)
    file = copy / "model.safetensors"
    torch.save(load_file(file), copy / "pytorch_model.bin")
    file.unlink()
    return copy


def adapter(place: Path, *needs: str) -> VisionTextAdapter:
    spec = Spec.model_validate(
        {
            "id": "random/clip",
            "family": "vision_text",
            "source": Source.model_validate({"path": str(place), "needs": needs}),
            "tasks": Tasks(encode=EncodeFacts(dims=48)),
            "inputs": ("text", "image"),
            "parameters": 300_000,
            "max_length": 32,
        }
    )
    return VisionTextAdapter(spec, VisionTextAdapter.options(), place, "cpu")


def vector(made: VisionTextAdapter, ask: Ask) -> NDArray[np.float32]:
    made.load()
    (outcome,) = ask(made, Verb.ENCODE, [{"text": "a bird"}], {})
    made.unload()
    assert isinstance(outcome, Output)
    return np.frombuffer(outcome.fields["dense"]["values"], np.float32)


def test_an_allowed_pickle_gives_the_vectors_of_the_safetensors(pickled: Path, ask: Ask) -> None:
    plain, other = adapter(folder("clip")), adapter(pickled, "pickle")
    assert other.footprint().weights == plain.footprint().weights
    assert np.allclose(vector(plain, ask), vector(other, ask), atol=1e-6)


def test_a_pickle_that_is_not_allowed_is_not_read(pickled: Path) -> None:
    with pytest.raises(LoadFailed, match="pickled ones are not loaded"):
        adapter(pickled).load()
