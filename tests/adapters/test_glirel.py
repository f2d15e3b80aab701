"""What GLiREL promises beyond the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from catalog.options import ExtractOptions
from catalog.schema import Source
from catalog.terms import Verb
from engine.adapters.glirel import GlirelAdapter, GlirelOptions
from engine.errors import ItemRejected, LoadFailed
from engine.types import Outcome, Output
from tests.adapters.conftest import DEVICE, batch
from tests.adapters.families.glirel import model, with_entities


@pytest.fixture(scope="module")
def adapter() -> Iterator[GlirelAdapter]:
    spec, path = model("safe")()
    made = GlirelAdapter(spec, GlirelOptions(), path, DEVICE)
    made.load()
    yield made
    made.unload()


def run(adapter: GlirelAdapter, payloads: Sequence[dict[str, Any]], *options: ExtractOptions) -> list[Outcome]:
    own = list(options) * len(payloads) if len(options) == 1 else list(options)
    return list(adapter.run(batch(Verb.EXTRACT, payloads, own)))


def relations(outcome: Outcome) -> list[dict[str, Any]]:
    assert isinstance(outcome, Output), outcome
    found: list[dict[str, Any]] = outcome.fields["relations"]
    return found


def by_name(found: list[dict[str, Any]]) -> dict[tuple[str, str, str], float]:
    return {(one["head"]["text"], one["tail"]["text"], one["relation"]): one["score"] for one in found}


ITEMS = [
    with_entities("Ada Lovelace works for ACME in London.", ["Ada Lovelace", "ACME", "London"]),
    with_entities("Ben paid Cleo.", ["Ben", "Cleo"]),
    with_entities("The court of Berlin, of all courts, fined ACME.", ["court", "Berlin", "ACME"]),
]


def test_jobs_with_labels_of_their_own_share_a_batch_and_never_mix(adapter: GlirelAdapter) -> None:
    asked = [
        ExtractOptions(labels=["works for"], threshold=0.0),
        ExtractOptions(labels=["lives in", "works for", "paid", "knows"], threshold=0.0, top_k=2),
        ExtractOptions(relation_labels=["fined", "sits in"], threshold=0.0),
    ]
    counts = [6, 4, 12]
    for item, options, count, outcome in zip(ITEMS, asked, counts, run(adapter, ITEMS, *asked), strict=True):
        found = by_name(relations(outcome))
        assert len(found) == count
        assert {relation for _, _, relation in found} <= set(options.labels or options.relation_labels or ())
        assert found == pytest.approx(by_name(relations(run(adapter, [item], options)[0])), abs=1e-4)


def test_ends_are_the_entities_that_were_sent(adapter: GlirelAdapter) -> None:
    item = {
        "text": "\U0001d400da met Ben.",
        "entities": [
            {"start": 0, "end": 3, "label": "person", "score": 0.25},
            {"start": 8, "end": 11, "label": "friend"},
        ],
    }
    found = relations(run(adapter, [item], ExtractOptions(labels=["met"], threshold=0.0))[0])
    ends = {one["head"]["text"]: one["head"] for one in found}
    assert ends == {
        "\U0001d400da": {"text": "\U0001d400da", "label": "person", "score": 0.25, "start": 0, "end": 3},
        "Ben": {"text": "Ben", "label": "friend", "score": 1.0, "start": 8, "end": 11},
    }


def test_there_is_nothing_between_fewer_than_two_entities(adapter: GlirelAdapter) -> None:
    items = [{"text": "", "entities": []}, {"text": "Ben paid.", "entities": []}, with_entities("Ben paid.", ["Ben"])]
    assert all(relations(one) == [] for one in run(adapter, items, ExtractOptions(labels=["paid"])))


def test_a_long_text_is_read_in_windows_and_pairs_near_each_other_are_found(adapter: GlirelAdapter) -> None:
    words = [f"word{index}" for index in range(300)]
    names = ["word2", "word9", "word147", "word155", "word290", "word297"]
    item = with_entities(" ".join(words), names)
    found = by_name(relations(run(adapter, [item], ExtractOptions(labels=["near"], threshold=0.0))[0]))
    near = {("word2", "word9"), ("word147", "word155"), ("word290", "word297")}
    assert {(head, tail) for head, tail, _ in found} == near | {(tail, head) for head, tail in near}


@pytest.mark.parametrize(
    ("item", "options", "param"),
    [
        ({"text": "Ben paid Cleo."}, {"labels": ["paid"]}, "entities"),
        (ITEMS[1], {}, "options.labels"),
        (ITEMS[1], {"labels": ["a [REL] b"]}, "options.labels"),
        (ITEMS[1], {"labels": [f"a relation of many words, number {i}" for i in range(80)]}, "options.labels"),
        (
            {"text": "Ben   paid", "entities": [{"start": 4, "end": 5, "label": "x"}]},
            {"labels": ["paid"]},
            "entities[0]",
        ),
    ],
)
def test_what_cannot_be_related_is_refused_with_its_name(
    adapter: GlirelAdapter, item: dict[str, Any], options: dict[str, Any], param: str
) -> None:
    outcome = run(adapter, [item], ExtractOptions(**options))[0]
    assert isinstance(outcome, ItemRejected)
    assert outcome.param == param


def test_a_crowd_of_entities_is_refused(adapter: GlirelAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.adapters.glirel._MOST_ENTITIES", 2)
    found = run(adapter, ITEMS[:2], ExtractOptions(labels=["knows"]))
    assert isinstance(found[0], ItemRejected)
    assert isinstance(found[1], Output)


def test_a_pickle_is_read_only_where_the_yaml_allows_it() -> None:
    spec, path = model("pickled")()
    adapter = GlirelAdapter(spec.model_copy(update={"source": Source()}), GlirelOptions(), path, DEVICE)
    with pytest.raises(LoadFailed, match=r"source\.needs"):
        adapter.load()


def test_labels_are_bounded_where_positions_have_no_end() -> None:
    spec, path = model("safe")()
    adapter = GlirelAdapter(spec, GlirelOptions(), path, DEVICE)
    adapter.load()
    adapter._hard = 0
    many = [f"label{index}" for index in range(100)]
    refused, taken = run(adapter, ITEMS[:2], ExtractOptions(labels=many), ExtractOptions(labels=many[:9]))
    assert isinstance(refused, ItemRejected)
    assert refused.param == "options.labels"
    assert "room for 128" in refused.message
    assert isinstance(taken, Output)
    adapter.unload()
