"""Many threads on one model and one tokenizer, each with limits of its own: nobody gets another's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from catalog.options import EncodeOptions
from catalog.tokenizer import Tokens
from engine.adapters.base import Adapter
from engine.types import Outcome, Output

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]

THREADS = 32
SECONDS = 3.0
TEXTS = [" ".join("abcdefgh"[n % 8 :: n % 3 + 1]) * (n % 7 + 1) for n in range(24)]


@pytest.mark.parametrize("name", ["normalised", "roberta"])
def test_threads_with_different_limits_get_what_a_serial_run_gives(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str
) -> None:
    # One model under three limits: three adapters, but each of them is used by a third of the threads at once.
    adapters = [load(name, max_length=longest) for longest in (8, 17, 32)]
    options = [EncodeOptions(), EncodeOptions(truncate=False), EncodeOptions(prompt="query")]
    tokenizer = adapters[0]._embedder.tokenizer  # type: ignore[attr-defined]

    def call(index: int) -> tuple[list[Outcome], list[Tokens]]:
        texts = TEXTS[index % 5 :: index % 4 + 2]
        outcomes = run(adapters[index % 3], texts, options[index // 3 % 3])
        return outcomes, [tokens.cut(index % 9 + 4) for tokens in tokenizer.encode(texts)]

    serial = [call(index) for index in range(THREADS)]
    gate = threading.Barrier(THREADS)
    stop = time.monotonic() + SECONDS

    def work(index: int) -> int:
        gate.wait()
        calls = 0
        while calls == 0 or time.monotonic() < stop:
            outcomes, tokens = call(index)
            calls += 1
            assert tokens == serial[index][1]
            for one, other in zip(serial[index][0], outcomes, strict=True):
                assert type(one) is type(other)
                assert not isinstance(one, Output) or np.abs(vector(one) - vector(other)).max() < 1e-5
        return calls

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))
    assert {type(outcome) is Output for outcomes, _ in serial for outcome in outcomes} == {True, False}
