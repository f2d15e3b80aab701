"""What every family that gives dense vectors of texts promises besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from catalog.options import EncodeOptions, OutputDtype
from catalog.terms import Verb
from engine.adapters.base import Adapter
from engine.errors import EngineError
from engine.types import Outcome, Output
from tests.adapters.case import Case
from tests.adapters.conftest import NAMED, build

LONG = "word " * 5_000

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]


def dense(case: Case) -> bool:
    facts = case.model()[0].tasks.encode
    return case.verb is Verb.ENCODE and facts is not None and facts.outputs[0] == "dense" and "text" in case.items()[0]


DENSE = [pytest.param(case, id=name) for name, case in NAMED if dense(case)]


@pytest.fixture(scope="module", params=DENSE)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def adapter(case: Case) -> Iterator[Adapter]:
    built = build(case)
    built.load()
    yield built
    built.unload()


@pytest.fixture(scope="module")
def vector(read_vector: Vector) -> Vector:
    return read_vector


@pytest.fixture
def texts(case: Case) -> list[str]:
    return [item["text"] for item in case.items() if "text" in item]


def cosine(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_a_text_beside_a_very_long_one_is_as_alone(
    adapter: Adapter, texts: list[str], run: Run, vector: Vector
) -> None:
    beside = vector(run(adapter, [texts[1], LONG])[0])
    assert cosine(beside, vector(run(adapter, [texts[1]])[0])) > 0.9999


def test_items_of_one_batch_keep_their_own_options(adapter: Adapter, texts: list[str], run: Run) -> None:
    facts = adapter.spec.tasks.encode
    assert facts is not None
    options = [
        EncodeOptions(),
        EncodeOptions(normalize=False),
        EncodeOptions(output_dtype=OutputDtype.FLOAT16),
        EncodeOptions(output_dtype=OutputDtype.BINARY),
        EncodeOptions(dimensions=min(facts.matryoshka, default=None)),
    ]
    some = (texts * 5)[:5]
    for text, own, outcome in zip(some, options, run(adapter, some, options), strict=True):
        assert isinstance(outcome, Output)
        alone = run(adapter, [text], [own])[0]
        assert isinstance(alone, Output)
        assert {**outcome.fields["dense"], "values": b""} == {**alone.fields["dense"], "values": b""}
        assert outcome.fields["dense"]["dims"] == (own.dimensions or facts.dims)


def test_a_text_over_the_limit_is_cut_and_marked(adapter: Adapter, run: Run) -> None:
    outcome = run(adapter, ["word " * (adapter.spec.max_length * 4)])[0]
    assert isinstance(outcome, Output)
    assert outcome.truncated
    assert outcome.tokens >= adapter.spec.max_length


def test_a_text_over_the_limit_is_refused_if_it_may_not_be_cut(adapter: Adapter, texts: list[str], run: Run) -> None:
    outcomes = run(adapter, ["word " * (adapter.spec.max_length * 4), texts[0]], EncodeOptions(truncate=False))
    assert isinstance(outcomes[0], EngineError)
    assert outcomes[0].code == "text_too_long"
    assert str(adapter.spec.max_length) in outcomes[0].message
    assert isinstance(outcomes[1], Output)


def test_two_texts_that_differ_only_at_the_end_differ(adapter: Adapter, run: Run, vector: Vector) -> None:
    # At 60 % of the advertised length nothing may be cut in silence.
    body = "a " * int(adapter.spec.max_length * 0.6)
    first, second = run(adapter, [body + "ships", body + "banks"])
    assert np.abs(vector(first) - vector(second)).max() > 1e-4
    assert isinstance(first, Output)
    assert not first.truncated
