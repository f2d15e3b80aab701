"""What Florence-2 writes becomes objects, lines and texts as its library reads them; tasks are checked by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from catalog.options import ExtractOptions, parse_options
from catalog.terms import Verb
from engine.adapters.florence2 import Florence2Adapter
from engine.errors import ItemRejected
from engine.picture_reader import Written
from engine.types import Output
from tests.adapters.conftest import batch, build, cases_of

CASE = cases_of("florence2")[0]
SIZE = (1000, 500)


@pytest.fixture(scope="module")
def adapter() -> Iterator[Florence2Adapter]:
    built = build(CASE)
    assert isinstance(built, Florence2Adapter)
    built.load()
    yield built
    built.unload()


def parsed(adapter: Florence2Adapter, answer: str, **options: Any) -> dict[str, Any]:
    ids = adapter.tokenizer(answer, add_special_tokens=False)["input_ids"]
    return dict(adapter.parse(Written(ids, ended=True), SIZE, ExtractOptions(**options)))


def test_objects_lie_in_pixels_of_the_image(adapter: Florence2Adapter) -> None:
    found = parsed(adapter, "cat<loc_100><loc_200><loc_299><loc_399>dog<loc_0><loc_0><loc_999><loc_999>", task="od")
    assert [one["label"] for one in found["objects"]] == ["cat", "dog"]
    assert found["objects"][0]["bbox"] == [100, 100, 199, 99]
    x, y, width, height = found["objects"][1]["bbox"]
    assert (x, y) == (0, 0) or (x, y) == (1, 0)
    assert x + width <= 1000
    assert y + height <= 500


def test_lines_have_their_corners(adapter: Florence2Adapter) -> None:
    corners = "<loc_100><loc_100><loc_300><loc_100><loc_300><loc_200><loc_100><loc_200>"
    found = parsed(adapter, f"Claim{corners}", task="<OCR_WITH_REGION>")["data"]
    assert found["text"] == "Claim"
    assert found["lines"][0]["bbox"][:2] == [100, 50]
    assert len(found["lines"][0]["corners"]) == 4


def test_the_phrases_of_a_grounding_task_are_asked_for(adapter: Florence2Adapter) -> None:
    options = ExtractOptions(task="caption_to_phrase_grounding", labels=["a cat", "a red car"])
    assert adapter.prompt(options) == "<CAPTION_TO_PHRASE_GROUNDING>a cat. a red car"


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"task": "sing"}, "options.task"),
        ({"task": "region_to_ocr"}, "options.task"),
        ({"task": "open_vocabulary_detection"}, "options.labels"),
        ({"task": "open_vocabulary_detection", "labels": ["a<loc_1>"]}, "options.labels"),
        ({"task": "open_vocabulary_detection", "labels": ["a"], "instruction": "b"}, "options.instruction"),
        ({"task": "caption", "labels": ["a"]}, "options.labels"),
        ({"task": "caption", "instruction": "in short"}, "options.instruction"),
    ],
)
def test_a_task_that_cannot_be_done_is_refused(adapter: Florence2Adapter, options: dict[str, Any], param: str) -> None:
    refused = adapter.prompt(ExtractOptions(**options))
    assert isinstance(refused, ItemRejected)
    assert refused.param == param


def test_a_text_that_the_limit_cut_is_marked(adapter: Florence2Adapter) -> None:
    options = parse_options(adapter.spec, Verb.EXTRACT, {}, {"task": "caption", "max_new_tokens": 3})
    (outcome,) = adapter.run(batch(Verb.EXTRACT, CASE.items()[:1], [options]))
    assert getattr(outcome, "truncated", None) is True
    assert getattr(outcome, "tokens", None) == 3


def test_labels_that_the_model_has_no_positions_for_are_refused_and_no_others(adapter: Florence2Adapter) -> None:
    def asked(count: int) -> ExtractOptions:
        return ExtractOptions(task="open_vocabulary_detection", labels=["cat"] * count, max_new_tokens=2)

    positions = 256
    most = max(count for count in range(1, 300) if isinstance(adapter.prompt(asked(count)), str))
    for count in (most, most + 1):
        (outcome,) = adapter.run(batch(Verb.EXTRACT, CASE.items()[:1], [asked(count)]))
        assert isinstance(outcome, Output if count == most else ItemRejected)
    assert isinstance(outcome, ItemRejected)
    assert outcome.param == "options.labels"
    assert str(positions) in outcome.message
    # So near the bound that one more label would be over it.
    prompt = adapter.prompt(asked(most))
    assert isinstance(prompt, str)
    library = adapter.processor(text=prompt, images=Image.new("RGB", (64, 64)), return_tensors="pt")
    assert positions - 8 < library["input_ids"].shape[1] <= positions


def test_what_is_written_may_take_all_positions_and_no_more(adapter: Florence2Adapter) -> None:
    options = parse_options(adapter.spec, Verb.EXTRACT, {}, {"task": "caption", "max_new_tokens": 4096})
    (outcome,) = adapter.run(batch(Verb.EXTRACT, CASE.items()[:1], [options]))
    assert isinstance(outcome, Output)
    assert outcome.tokens == 255
    assert outcome.truncated
