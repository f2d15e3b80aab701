"""What is different on a card: streams, pinned copies, memory by torch's own count. Skipped where there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.adapters.sentence_transformer import SentenceTransformerAdapter, SentenceTransformerOptions
from engine.types import Outcome

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")

TEXTS = ["ab", "cab bag", "a b c d e f g h", "g a c e", "bead face " * 3, "b " * 40]


@pytest.fixture
def on_card(
    layouts: dict[str, Path], tiny: Callable[..., SentenceTransformerAdapter]
) -> Callable[..., SentenceTransformerAdapter]:
    def loaded(device: str = "cuda", **options: str) -> SentenceTransformerAdapter:
        spec = tiny(layouts["normalised"]).spec
        parsed = SentenceTransformerOptions.model_validate(options)
        adapter = SentenceTransformerAdapter(spec, parsed, layouts["normalised"], device)
        adapter.load()
        return adapter

    return loaded


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-4), ("float16", 1e-2), ("bfloat16", 5e-2)])
def test_a_card_gives_the_cpus_vectors_without_padding(
    on_card: Callable[..., SentenceTransformerAdapter], run: Run, vector: Vector, dtype: str, most: float
) -> None:
    there, here = on_card(dtype=dtype), on_card("cpu")
    assert there.unpadded
    for one, other in zip(run(there, TEXTS), run(here, TEXTS), strict=True):
        assert np.abs(vector(one) - vector(other)).max() < most


def test_what_is_held_is_what_torch_counts(on_card: Callable[..., SentenceTransformerAdapter], run: Run) -> None:
    on_card().unload()  # what a first use of the card takes
    before = torch.cuda.memory_allocated()
    adapter = on_card()
    run(adapter, TEXTS)
    grown = torch.cuda.memory_allocated() - before
    held = adapter.held()
    assert held is not None
    # Each tensor takes a multiple of 512 bytes.
    assert held <= grown <= held + 512 * len(list(adapter._embedder.model.state_dict())) + 2**16  # type: ignore[union-attr]


def test_a_parked_model_leaves_the_card_empty(on_card: Callable[..., SentenceTransformerAdapter], run: Run) -> None:
    before = torch.cuda.memory_allocated()
    adapter = on_card()
    adapter.park()
    assert torch.cuda.memory_allocated() == before
    adapter.restore()
    assert len(run(adapter, TEXTS)) == len(TEXTS)
    adapter.unload()


def test_a_batch_runs_on_a_stream_of_its_own(on_card: Callable[..., SentenceTransformerAdapter], run: Run) -> None:
    adapter = on_card()
    embedder = adapter._embedder
    assert embedder is not None
    seen: list[torch.cuda.Stream] = []
    embedder.model[0].register_forward_pre_hook(lambda *_: seen.append(torch.cuda.current_stream()))
    run(adapter, TEXTS)
    assert seen == [embedder.stream]
    assert embedder.stream != torch.cuda.default_stream()


def test_after_the_load_the_footprint_is_what_was_measured(on_card: Callable[..., SentenceTransformerAdapter]) -> None:
    adapter = on_card()
    before = SentenceTransformerAdapter(adapter.spec, adapter.load_options, adapter.folder, "cuda").footprint()
    after = adapter.footprint()
    assert after.weights == before.weights
    assert 0 < after.per_token != before.per_token


def test_models_on_one_card_run_side_by_side(
    on_card: Callable[..., SentenceTransformerAdapter], run: Run, vector: Vector
) -> None:
    adapters = [on_card() for _ in range(2)]
    expected = [vector(outcome) for outcome in run(adapters[0], TEXTS)]
    worst: list[float] = []

    def work(adapter: SentenceTransformerAdapter) -> None:
        for _ in range(20):
            got = [vector(outcome) for outcome in run(adapter, TEXTS)]
            worst.append(max(float(np.abs(a - b).max()) for a, b in zip(expected, got, strict=True)))

    threads = [threading.Thread(target=work, args=(adapter,)) for adapter in adapters for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 80
    assert max(worst) < 1e-4
