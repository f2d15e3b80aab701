"""What Donut writes becomes fields as its library reads them; a question goes where the task has a place for it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.options import ExtractOptions, parse_options
from catalog.terms import Verb
from engine.adapters.donut import DonutAdapter
from engine.errors import ItemRejected
from engine.images import only_image
from engine.picture_reader import Written
from engine.types import Outcome, Output
from tests.adapters.conftest import batch, build, cases_of

ASK = "<s_docvqa><s_question>{user_input}</s_question><s_answer>"


@pytest.fixture(scope="module")
def adapter() -> Iterator[DonutAdapter]:
    built = build(cases_of("donut")[0])
    assert isinstance(built, DonutAdapter)
    built.load()
    yield built
    built.unload()


def test_tags_become_fields(adapter: DonutAdapter) -> None:
    text = "<s_menu><s_nm>tea</s_nm><s_price>2.50</s_price></s_menu>"
    ids = adapter.tokenizer(text, add_special_tokens=False)["input_ids"]
    found = adapter.parse(Written(ids, ended=True), (9, 9), ExtractOptions())
    assert found["data"]["fields"] == {"menu": {"nm": "tea", "price": "2.50"}}


def test_a_question_goes_into_its_place(adapter: DonutAdapter) -> None:
    ids = adapter.prompt(ExtractOptions(task=ASK, instruction="what total?"))
    assert isinstance(ids, list)
    said = adapter.tokenizer.decode(ids, skip_special_tokens=False)
    assert said.replace(" ", "") == ASK.format(user_input="whattotal?")


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"task": "<s_unknown>"}, "options.task"),
        ({"task": ASK}, "options.instruction"),
        ({"instruction": "what total?"}, "options.instruction"),
        ({"task": ASK, "instruction": "what </s_question> total?"}, "options.instruction"),
    ],
)
def test_a_task_that_cannot_be_done_is_refused(adapter: DonutAdapter, options: dict[str, Any], param: str) -> None:
    refused = adapter.prompt(ExtractOptions(**options))
    assert isinstance(refused, ItemRejected)
    assert refused.param == param


def test_a_question_may_fill_the_positions_and_a_longer_one_is_refused(adapter: DonutAdapter) -> None:
    def answer(question: str) -> Outcome:
        options = parse_options(adapter.spec, Verb.EXTRACT, {}, {"task": ASK, "instruction": question})
        return adapter.run(batch(Verb.EXTRACT, cases_of("donut")[0].items()[:1], [options]))[0]

    ids = adapter.prompt(ExtractOptions(task=ASK, instruction="what " * 40))
    assert isinstance(ids, list)
    outcome = answer("what " * 40)
    assert isinstance(outcome, Output), outcome
    assert len(ids) + outcome.tokens == 128
    refused = answer("what " * 900)
    assert isinstance(refused, ItemRejected)
    assert refused.param == "options.instruction"


def test_one_decoded_image_at_a_time_is_kept(adapter: DonutAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    import engine.picture_reader as reader

    decoded: list[weakref.ref[Any]] = []
    there: list[int] = []

    def watched(payload: Any) -> Any:
        gc.collect()
        there.append(sum(one() is not None for one in decoded))
        image = only_image(payload)
        decoded.append(weakref.ref(image))
        return image

    monkeypatch.setattr(reader, "only_image", watched)
    items = cases_of("donut")[0].items()
    options = parse_options(adapter.spec, Verb.EXTRACT, {}, {"max_new_tokens": 1})
    outcomes = adapter.run(batch(Verb.EXTRACT, items, [options] * len(items)))
    assert all(isinstance(one, Output) for one in outcomes)
    assert there == [0] * len(items)
