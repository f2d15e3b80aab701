"""What GLiNER2 promises beyond the contract: several tasks in one call, long texts, JSON Schemas, exact offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from catalog.options import ExtractOptions
from catalog.terms import Verb
from engine.adapters.gliner2 import Gliner2Adapter
from engine.errors import ItemRejected, NotFinite
from engine.torch_adapter import TorchOptions
from engine.types import Outcome, Output
from tests.adapters.conftest import DEVICE, batch
from tests.adapters.families.gliner2 import SCHEMA, model

CLAIM = {
    "type": "object",
    "properties": {
        "payer": {"type": "string"},
        "amount": {"type": "number"},
        "kind": {"enum": ["civil", "criminal"]},
        "court": {"type": "object", "properties": {"city": {"type": "string"}}},
        "people": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
    },
}


@pytest.fixture(scope="module")
def adapter() -> Iterator[Gliner2Adapter]:
    spec, path = model()
    made = Gliner2Adapter(spec, TorchOptions(), path, DEVICE)
    made.load()
    yield made
    made.unload()


def run(adapter: Gliner2Adapter, texts: Sequence[str], *options: ExtractOptions) -> list[Outcome]:
    own = list(options) * len(texts) if len(options) == 1 else list(options)
    return list(adapter.run(batch(Verb.EXTRACT, [{"text": text} for text in texts], own)))


def fields(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Output), outcome
    return dict(outcome.fields)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def test_jobs_with_schemas_of_their_own_share_a_batch_and_never_mix(adapter: Gliner2Adapter) -> None:
    asked = [
        ExtractOptions(labels=["person", "company"], threshold=0.3),
        ExtractOptions(labels=["currency"], threshold=0.4, flat_ner=False),
        ExtractOptions(labels=["glad", "sad", "angry"], classification_task="mood", multi_label=True, threshold=0.5),
        ExtractOptions(output_schema=SCHEMA, threshold=0.3),
        ExtractOptions(output_schema=CLAIM, labels=["judge"], relation_labels=["before"], threshold=0.3),
    ]
    texts = [
        "Ada met Ben at ACME.",
        "It cost 5 euros.",
        "Fine.",
        "The judge sat in Rome.",
        "Ben paid 20 dollars in Bonn.",
    ]
    names = [
        {"entities"},
        {"entities"},
        {"classifications"},
        {"classifications", "data"},
        {"entities", "relations", "data"},
    ]
    for text, options, own, outcome in zip(texts, asked, names, run(adapter, texts, *asked), strict=True):
        found = fields(outcome)
        assert set(found) == own
        assert {one["label"] for one in found.get("entities", [])} <= set(options.labels or ())
        assert rounded(found) == rounded(fields(run(adapter, [text], options)[0]))


def test_a_json_schema_gives_an_object_of_its_form(adapter: Gliner2Adapter) -> None:
    data = fields(run(adapter, ["The court in Bonn fined Ben 20 euros."], ExtractOptions(output_schema=CLAIM))[0])[
        "data"
    ]
    assert set(data) == {"payer", "amount", "kind", "court", "people"}
    assert data["kind"] in ("civil", "criminal", None)
    assert data["amount"] is None or isinstance(data["amount"], int | float)
    assert isinstance(data["people"], list)


def test_a_blank_text_has_nothing_of_each_kind(adapter: Gliner2Adapter) -> None:
    options = ExtractOptions(labels=["person"], relation_labels=["knows"], output_schema=CLAIM)
    found = run(adapter, ["", "Ada met Ben.", "  "], options)
    for blank in (found[0], found[2]):
        assert fields(blank)["entities"] == fields(blank)["relations"] == []
        assert fields(blank)["data"] == {"payer": None, "amount": None, "kind": None, "court": None, "people": []}


def test_all_windows_of_a_long_text_are_read_and_offsets_are_of_the_whole(adapter: Gliner2Adapter) -> None:
    words = [f"word{index % 89}" for index in range(3000)]
    for place, name in ((3, "Zebulon"), (1500, "Quillon"), (2996, "Yarrow")):
        words[place] = name
    text = " ".join(words)
    options = ExtractOptions(labels=["person"], threshold=0.001)
    plan = adapter._plan(adapter.ready(), batch(Verb.EXTRACT, [{"text": text}], [options]).entries[0], {})
    assert not isinstance(plan, Exception)
    assert len(plan.windows) > 20
    assert max(plan.lengths) < 256
    assert all(one.stop > other.first for one, other in pairwise(plan.windows))
    outcome = run(adapter, [text], options)[0]
    found = fields(outcome)["entities"]
    assert isinstance(outcome, Output)
    assert not outcome.truncated
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found)
    for name in ("Zebulon", "Quillon", "Yarrow"):
        assert any(name in one["text"] for one in found), name


@pytest.mark.parametrize(
    "before",
    ["\u0130stanbul", "\u039f\u0394\u039f\u03a3", "\U0001f468\u200d\U0001f469", "cafe\u0301", "\U0001d400\U0001d401"],
)
def test_offsets_are_code_points_and_end_within_the_text(adapter: Gliner2Adapter, before: str) -> None:
    text = f"{before} Ada met Ben in {before}"  # without a full stop, which the library puts there
    found = fields(run(adapter, [text], ExtractOptions(labels=["person"], threshold=0.001, flat_ner=False))[0])[
        "entities"
    ]
    assert any(one["end"] == len(text) for one in found)
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found)


PATTERN = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}
COLOUR = {"structures": {"a": {"fields": [{"name": "b", "colour": "red"}]}}}


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({}, "options.labels"),
        ({"output_schema": PATTERN}, "options.output_schema"),
        (
            {"output_schema": {"structures": {"a": {"fields": [{"name": "b", "colour": "red"}]}}}},
            "options.output_schema",
        ),
        ({"output_schema": {"entities": []}}, "options.output_schema"),
        ({"relation_labels": ["met"], "classification_task": "topic"}, "options.classification_task"),
        ({"labels": ["person"], "multi_label": True}, "options.multi_label"),
        ({"labels": [f"a label of many words, number {index}" for index in range(80)]}, "options.labels"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_name(
    adapter: Gliner2Adapter, options: dict[str, Any], param: str
) -> None:
    outcome = run(adapter, ["A text"], ExtractOptions(**options))[0]
    assert isinstance(outcome, ItemRejected)
    assert outcome.param == param


def test_numbers_that_are_none_are_that_rows_error(adapter: Gliner2Adapter) -> None:
    import torch

    def broken(_module: Any, _given: Any, output: Any) -> Any:
        states = output.last_hidden_state.clone()
        states[1] = torch.nan
        output.last_hidden_state = states
        return output

    encoder: Any = adapter.ready().encoder
    hook = encoder.register_forward_hook(broken, prepend=True)
    try:
        found = run(adapter, ["Ada and Ben met", "Ada or Ben met"], ExtractOptions(labels=["person"]))
    finally:
        hook.remove()
    assert sorted(type(one).__name__ for one in found) == [NotFinite.__name__, Output.__name__]


def test_labels_are_bounded_where_positions_have_no_end() -> None:
    spec, path = model()
    adapter = Gliner2Adapter(spec, TorchOptions(), path, DEVICE)
    adapter.load()
    adapter._hard = 0
    many = [f"label{index}" for index in range(100)]
    refused, taken = run(adapter, ["Ada"] * 2, ExtractOptions(labels=many), ExtractOptions(labels=many[:9]))
    assert isinstance(refused, ItemRejected)
    assert refused.param == "options.labels"
    assert "room for 128" in refused.message
    assert isinstance(taken, Output)
    adapter.unload()
