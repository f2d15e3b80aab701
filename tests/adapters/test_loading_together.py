"""Loads beside one another: each model is whole, and so is the library afterwards."""

from __future__ import annotations

import threading

from transformers import PreTrainedModel

from tests.adapters.conftest import build, cases_of

TIMES = 3


def test_models_that_are_read_by_two_loaders_at_once_are_whole() -> None:
    tied = PreTrainedModel.tie_weights
    failures: list[BaseException] = []
    gate = threading.Barrier(2)

    def load(family: str) -> None:
        gate.wait()
        for _ in range(TIMES):
            adapter = build(cases_of(family)[0])
            try:
                adapter.load()
            except Exception as error:  # noqa: BLE001 - it is told below
                failures.append(error)
            adapter.unload()

    threads = [threading.Thread(target=load, args=(family,)) for family in ("causal_reranker", "vision_text")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert PreTrainedModel.tie_weights is tied
