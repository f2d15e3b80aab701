"""Weights in pickles: read where the YAML says that the model needs them, as tensors and nothing else."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from engine.adapters.base import Adapter
from engine.adapters.sentence_transformer import SentenceTransformerAdapter
from engine.errors import LoadFailed, LoadReason
from engine.types import Outcome

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]
Tiny = Callable[..., SentenceTransformerAdapter]


@pytest.fixture
def pickled(layouts: dict[str, Path], tmp_path: Path) -> Path:
    """The layout with a projection; both modules have their weights in a pickle."""
    folder = tmp_path / "model"
    shutil.copytree(layouts["dense"], folder)
    for file in list(folder.rglob("*.safetensors")):
        torch.save(load_file(file), file.with_name("pytorch_model.bin"))
        file.unlink()
    return folder


def allowed(tiny: Tiny, folder: Path) -> SentenceTransformerAdapter:
    made = tiny(folder, dims=16)
    spec = made.spec.model_copy(update={"source": made.spec.source.model_copy(update={"needs": ("pickle",)})})
    return SentenceTransformerAdapter(spec, made.load_options, folder, made.device)


def test_pickles_that_are_allowed_give_the_same_vectors(
    pickled: Path, tiny: Tiny, load: Callable[..., Adapter], run: Run, vector: Vector
) -> None:
    plain, other = load("dense", dims=16), allowed(tiny, pickled)
    assert other.footprint() == plain.footprint()
    other.load()
    one, same = (vector(run(adapter, ["a b c"])[0]) for adapter in (plain, other))
    assert np.abs(one - same).max() < 1e-6
    other.unload()


def test_pickles_that_are_not_allowed_are_not_opened(pickled: Path, tiny: Tiny, layouts: dict[str, Path]) -> None:
    with pytest.raises(LoadFailed, match="pickled ones are not loaded"):
        tiny(pickled, dims=16).load()
    shutil.copy(layouts["dense"] / "model.safetensors", pickled)
    with pytest.raises(LoadFailed, match=r"pickled weights in '2_Dense'.*source\.needs") as refused:
        tiny(pickled, dims=16).load()
    assert refused.value.reason is LoadReason.CONFIG


class Bomb:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.place,)


@pytest.mark.parametrize("module", ["", "2_Dense"])
def test_code_in_an_allowed_pickle_is_not_run(pickled: Path, tiny: Tiny, tmp_path: Path, module: str) -> None:
    file = pickled / module / "pytorch_model.bin"
    torch.save({**torch.load(file, weights_only=True), "bomb": Bomb(tmp_path / "it-ran")}, file)
    with pytest.raises(LoadFailed):
        allowed(tiny, pickled).load()
    file.write_bytes(pickle.dumps(Bomb(tmp_path / "it-ran")))
    with pytest.raises(LoadFailed):
        allowed(tiny, pickled).load()
    assert not (tmp_path / "it-ran").exists()
