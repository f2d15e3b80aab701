"""Code that comes with a model: run where its YAML says that the model needs it, and nowhere else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.adapters.base import Adapter
from engine.adapters.sentence_transformer import SentenceTransformerAdapter
from engine.errors import LoadFailed
from engine.types import Outcome

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]
Tiny = Callable[..., SentenceTransformerAdapter]

OWN = """
from pathlib import Path

from transformers import BertModel

Path({mark!r}).touch()


class OwnModel(BertModel):
    pass
"""


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "it-ran"


@pytest.fixture
def owned(layouts: dict[str, Path], tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The layout with a projection, whose transformer is a class in a file beside it."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "owned"
    shutil.copytree(layouts["dense"], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "own_model.OwnModel"}}))
    (folder / "own_model.py").write_text(OWN.format(mark=str(mark)))
    return folder


def allowed(tiny: Tiny, folder: Path) -> SentenceTransformerAdapter:
    made = tiny(folder, dims=16)
    spec = made.spec.model_copy(update={"source": made.spec.source.model_copy(update={"needs": ("code",)})})
    return SentenceTransformerAdapter(spec, made.load_options, folder, made.device)


def test_code_that_is_allowed_makes_the_model(
    owned: Path, tiny: Tiny, load: Callable[..., Adapter], run: Run, vector: Vector, mark: Path
) -> None:
    other = allowed(tiny, owned)
    other.load()
    assert mark.exists()
    one, same = (vector(run(adapter, ["a b c"])[0]) for adapter in (load("dense", dims=16), other))
    assert np.abs(one - same).max() < 1e-6
    other.unload()


def test_code_that_is_not_allowed_is_not_run(owned: Path, tiny: Tiny, mark: Path) -> None:
    made = tiny(owned, dims=16)
    made.load()
    made.unload()
    assert not mark.exists(), "the library's own class of that name serves"
    config = json.loads((owned / "config.json").read_text())
    (owned / "config.json").write_text(json.dumps({**config, "model_type": "own"}))
    with pytest.raises(LoadFailed, match=r"transformers does not know|code of its own"):
        tiny(owned, dims=16).load()
    assert not mark.exists()
