"""Many threads on one model, encoding under different lengths and scoring: each gets what it would get alone."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from catalog.options import parse_options
from catalog.terms import Verb
from engine.errors import TextTooLong
from engine.types import Outcome, Output
from tests.adapters.case import agree, plain
from tests.adapters.conftest import batch, build, cases_of

THREADS = 32
SECONDS = 3.0
WORDS = ["ships", "boats", "rafts", "jobs", "queues", "workers", "harbours", "contracts"]
TEXTS = [" ".join(WORDS[n % 5 :]) + " again" * (n * 17 % 90) for n in range(12)]
SETTINGS: dict[str, list[tuple[Verb, dict[str, Any]]]] = {
    # A query is read up to 16 tokens by this model, and a document up to 48.
    "late_interaction": [
        (Verb.ENCODE, {"is_query": True}),
        (Verb.ENCODE, {}),
        (Verb.ENCODE, {"truncate": False}),
        (Verb.SCORE, {}),
        (Verb.SCORE, {"truncate": False}),
    ],
    "bge_m3": [
        (Verb.ENCODE, {"output_types": ["sparse", "dense"]}),
        (Verb.ENCODE, {"output_types": ["multivector"], "truncate": False}),
        (Verb.SCORE, {"score_mode": "sparse"}),
        (Verb.SCORE, {}),
    ],
}


@pytest.mark.parametrize("family", sorted(SETTINGS))
def test_threads_that_encode_and_score_on_one_model_get_what_a_serial_run_gives(family: str) -> None:
    adapter = build(cases_of(family)[0])
    adapter.load()
    settings = SETTINGS[family]

    def call(index: int) -> list[Outcome]:
        verb, sent = settings[index % len(settings)]
        options = parse_options(adapter.spec, verb, {}, sent)
        payloads = [{"text": text, "query": {"text": TEXTS[index % 12]}} for text in TEXTS[index % 4 :: index % 3 + 2]]
        return list(adapter.run(batch(verb, payloads, [options] * len(payloads))))

    serial = [call(index) for index in range(THREADS)]
    gate, stop = threading.Barrier(THREADS), time.monotonic() + SECONDS

    def work(index: int) -> int:
        gate.wait()
        calls = 0
        while calls == 0 or time.monotonic() < stop:
            for one, other in zip(serial[index], call(index), strict=True):
                assert type(one) is type(other)
                if isinstance(one, Output) and isinstance(other, Output):
                    assert (one.tokens, one.truncated) == (other.tokens, other.truncated)
                    assert agree(plain(one), plain(other), 1e-4) is None
            calls += 1
        return calls

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))
    assert {type(outcome) for outcomes in serial for outcome in outcomes} == {Output, TextTooLong}
    adapter.unload()
