"""The same embedders in ONNX Runtime: equal to torch, exported once, and refused where they may not be run so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from catalog.schema import Loss
from engine import onnx_export
from engine.adapters.base import Adapter
from engine.adapters.sentence_transformer import SentenceTransformerAdapter
from engine.errors import LoadFailed, LoadReason
from engine.types import Outcome

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

Run = Callable[..., list[Outcome]]
Tiny = Callable[..., SentenceTransformerAdapter]
Vector = Callable[[Outcome], NDArray[np.float32]]

TEXTS = ["a", "cab bag", "a b c d e f g h", "bad cab fed a hedge", "face"]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for exported models that all tests of this page share: an export takes seconds."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "roost" / "onnx"


def allow(adapter: SentenceTransformerAdapter, cosine_worst: float) -> SentenceTransformerAdapter:
    loss = Loss(cosine_mean=cosine_worst, cosine_worst=cosine_worst, texts="some")
    adapter.spec = adapter.spec.model_copy(update={"precisions": {"int8": loss}})
    return adapter


def vectors(run: Run, vector: Vector, adapter: Adapter) -> NDArray[np.float32]:
    return np.stack([vector(outcome) for outcome in run(adapter, TEXTS)])


@pytest.mark.parametrize("layout", ["normalised", "roberta", "last"])
@pytest.mark.usefixtures("cache")
def test_vectors_equal_those_of_torch(
    layout: str, layouts: dict[str, Path], load: Callable[..., Adapter], tiny: Tiny, run: Run, vector: Vector
) -> None:
    adapter = tiny(layouts[layout], runtime="onnx")
    adapter.load()
    np.testing.assert_allclose(vectors(run, vector, adapter), vectors(run, vector, load(layout)), atol=1e-5)


def test_a_model_is_exported_once(
    cache: Path, layouts: dict[str, Path], tiny: Tiny, run: Run, vector: Vector, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tiny(layouts["normalised"], runtime="onnx")
    first.load()
    made = sorted(cache.iterdir())
    monkeypatch.setattr(onnx_export, "_export", lambda *_: pytest.fail("exported again"))
    second = tiny(layouts["normalised"], runtime="onnx")
    second.load()
    assert sorted(cache.iterdir()) == made
    np.testing.assert_array_equal(vectors(run, vector, first), vectors(run, vector, second))


def test_other_weights_are_exported_anew(layouts: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes((layouts["normalised"] / "model.safetensors").read_bytes())
    before = onnx_export.digest([file], "float32")
    assert onnx_export.digest([file], "float32") == before
    assert onnx_export.digest([file], "int8") != before
    file.write_bytes(file.read_bytes() + b"\0")
    assert onnx_export.digest([file], "float32") != before


def test_a_damaged_export_is_made_again(cache: Path, layouts: dict[str, Path], tiny: Tiny, run: Run) -> None:
    tiny(layouts["normalised"], runtime="onnx").load()
    for file in cache.glob("*/model.onnx"):
        file.write_bytes(b"no model")
    adapter = tiny(layouts["normalised"], runtime="onnx")
    adapter.load()
    assert len(run(adapter, TEXTS)) == len(TEXTS)


def test_the_rest_of_an_export_that_was_thrown_away_is_in_nobodys_way(
    cache: Path, layouts: dict[str, Path], tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(layouts["normalised"], runtime="onnx").load()
    kept = {file.parent.name: file.read_bytes() for file in cache.glob("*/model.onnx")}
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent.parent / "other"))
    monkeypatch.setattr(onnx_export, "digest", lambda *_: next(iter(kept)))
    monkeypatch.setattr(onnx_export, "_export", lambda *given: given[2].write_bytes(next(iter(kept.values()))))
    other = onnx_export.cache_folder()
    (other / next(iter(kept))).mkdir(parents=True)
    (other / next(iter(kept)) / "model.onnx.data").write_bytes(b"left")
    old = other / ".making-old"
    old.mkdir()
    os.utime(old, (0, 0))
    young = other / ".making-young"
    young.mkdir()
    file = onnx_export.exported(torch.nn.Identity(), (), (), "float32", other)
    assert file.read_bytes() == next(iter(kept.values()))
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.usefixtures("cache")
def test_threads_that_run_at_once_do_not_disturb_each_other(
    layouts: dict[str, Path], tiny: Tiny, run: Run, vector: Vector
) -> None:
    adapter = tiny(layouts["normalised"], runtime="onnx")
    adapter.load()
    expected = vectors(run, vector, adapter)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: vectors(run, vector, adapter), range(40)))
    for one in found:
        np.testing.assert_allclose(one, expected, atol=1e-6)


def test_int8_is_refused_where_its_loss_was_not_measured(cache: Path, layouts: dict[str, Path], tiny: Tiny) -> None:
    before = len(list(cache.glob("*"))) if cache.exists() else 0
    with pytest.raises(LoadFailed, match="'precisions'") as caught:
        tiny(layouts["raw"], runtime="onnx", precision="int8").load()
    assert caught.value.reason is LoadReason.CONFIG
    assert (len(list(cache.glob("*"))) if cache.exists() else 0) == before


@pytest.mark.usefixtures("cache")
def test_int8_stays_within_its_measured_loss_and_takes_less(
    layouts: dict[str, Path], load: Callable[..., Adapter], tiny: Tiny, run: Run, vector: Vector
) -> None:
    adapter = allow(tiny(layouts["normalised"], runtime="onnx", precision="int8"), 0.95)
    adapter.load()
    found, expected = vectors(run, vector, adapter), vectors(run, vector, load("normalised"))
    assert np.min(np.sum(found * expected, axis=1)) >= 0.95
    assert np.abs(found - expected).max() > 1e-5, "these are the vectors of float32"


@pytest.mark.usefixtures("cache")
def test_a_lower_precision_that_loses_more_than_was_measured_does_not_load(
    layouts: dict[str, Path], tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.onnx_transformer._SLACK", -0.05)
    with pytest.raises(LoadFailed, match="other vectors") as caught:
        allow(tiny(layouts["normalised"], runtime="onnx", precision="int8"), 0.99).load()
    assert caught.value.reason is LoadReason.CONFIG


def test_a_cache_that_cannot_be_written_is_named(
    layouts: dict[str, Path], tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "roost").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(LoadFailed, match="XDG_CACHE_HOME") as caught:
        tiny(layouts["normalised"], runtime="onnx").load()
    assert caught.value.reason is LoadReason.CONFIG


def test_a_card_has_no_onnx_runtime(layouts: dict[str, Path]) -> None:
    from catalog.loader import Catalog

    spec = Catalog.load().find("all-MiniLM-L6-v2").spec
    options = SentenceTransformerAdapter.options.model_validate({"runtime": "onnx"})
    adapter = SentenceTransformerAdapter(spec, options, layouts["normalised"], "cuda:0")
    with pytest.raises(LoadFailed, match="on a card") as caught:
        adapter.load()
    assert caught.value.reason is LoadReason.CONFIG


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "int8"},
        {"runtime": "onnx", "dtype": "bfloat16"},
        {"runtime": "onnx", "attention": "eager"},
        {"runtime": "onnx", "padding": "never"},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="runtime"):
        SentenceTransformerAdapter.options.model_validate(options)
