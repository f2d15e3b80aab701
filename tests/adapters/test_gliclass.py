"""What GLiClass models promise beyond the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from catalog.options import ExtractOptions
from catalog.terms import Verb
from engine.adapters.gliclass import GliclassAdapter
from engine.errors import ItemRejected
from engine.torch_adapter import TorchOptions
from engine.types import Outcome, Output
from tests.adapters.conftest import DEVICE, batch
from tests.adapters.families.gliclass import model


@pytest.fixture(scope="module", params=["first", "average"])
def adapter(request: pytest.FixtureRequest) -> Iterator[GliclassAdapter]:
    spec, path = model(request.param)()
    made = GliclassAdapter(spec, TorchOptions(), path, DEVICE)
    made.load()
    yield made
    made.unload()


def run(adapter: GliclassAdapter, texts: Sequence[str], *options: ExtractOptions) -> list[Outcome]:
    own = list(options) * len(texts) if len(options) == 1 else list(options)
    return list(adapter.run(batch(Verb.EXTRACT, [{"text": text} for text in texts], own)))


def scores(outcome: Outcome) -> dict[str, float]:
    assert isinstance(outcome, Output), outcome
    return {one["label"]: one["score"] for one in outcome.fields["classifications"]}


def test_jobs_with_labels_and_ways_of_their_own_share_a_batch_and_never_mix(adapter: GliclassAdapter) -> None:
    asked = [
        ExtractOptions(labels=["good", "bad"]),
        ExtractOptions(labels=["sport", "law", "tech", "weather"], multi_label=True, threshold=0.0),
        ExtractOptions(labels=["law"], multi_label=True, threshold=0.0, instruction="About: "),
        ExtractOptions(labels=["x", "y", "z"], top_k=2, hypothesis_template="This is {}."),
    ]
    texts = [
        "A fine day.",
        "The court sat until noon and nobody was heard.",
        "Rain",
        "What a long game of chess it was.",
    ]
    for text, options, outcome in zip(texts, asked, run(adapter, texts, *asked), strict=True):
        assert set(scores(outcome)) <= set(options.labels or ())
        assert scores(outcome) == pytest.approx(scores(run(adapter, [text], options)[0]), abs=1e-4)
    assert len(scores(run(adapter, texts[:1], asked[3])[0])) == 2


def test_a_template_is_what_the_model_reads_and_the_label_what_is_given_back(adapter: GliclassAdapter) -> None:
    plain: Any = {"multi_label": True, "threshold": 0.0}
    templated = ExtractOptions(labels=["law"], hypothesis_template="about {}", **plain)
    written = ExtractOptions(labels=["about law"], **plain)
    one, other = run(adapter, ["The court sat."] * 2, templated, written)
    assert list(scores(one)) == ["law"]
    assert scores(one)["law"] == pytest.approx(scores(other)["about law"], abs=1e-4)


def test_a_blank_text_is_of_no_class(adapter: GliclassAdapter) -> None:
    found = run(adapter, ["", "A text", " \n"], ExtractOptions(labels=["good"]))
    assert [len(scores(one)) for one in found] == [0, 1, 0]


def test_a_long_text_has_the_best_score_of_any_window(adapter: GliclassAdapter) -> None:
    options = ExtractOptions(labels=["law", "sport"], multi_label=True, threshold=0.0)
    text = " ".join(f"Sentence {index} is about nothing at all." for index in range(60))
    outcome = run(adapter, [text], options)[0]
    entry = batch(Verb.EXTRACT, [{"text": text}], [options]).entries[0]
    rows = adapter._plan(adapter.ready(), 0, entry, {})
    assert isinstance(rows, list)
    windows = [row.text for row in rows]
    assert len(windows) > 3
    assert windows[0][:8] == text[:8]
    assert windows[-1][-8:] == text[-8:]
    each = [scores(one) for one in run(adapter, windows, options)]
    best = {label: max(one[label] for one in each) for label in ("law", "sport")}
    assert scores(outcome) == pytest.approx(best, abs=1e-4)
    assert isinstance(outcome, Output)
    assert outcome.tokens > len(text.split())


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({}, "options.labels"),
        ({"labels": [f"a long label with many words, number {i}" for i in range(40)]}, "options.labels"),
        ({"labels": ["x <<SEP>>"]}, "options.labels"),
        ({"labels": ["x"], "examples": [{"text": "a", "labels": ["x"]}, {"text": "b"}]}, "options.examples[1]"),
        ({"labels": ["x"], "examples": [{"text": "a", "labels": "x"}]}, "options.examples[0]"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_name(
    adapter: GliclassAdapter, options: dict[str, Any], param: str
) -> None:
    outcome = run(adapter, ["A text"], ExtractOptions(**options))[0]
    assert isinstance(outcome, ItemRejected)
    assert outcome.param == param
