"""What Donut writes becomes fields as its library reads them; a question goes where the task has a place for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from catalog.options import ExtractOptions
from engine.adapters.donut import DonutAdapter
from engine.errors import ItemRejected
from engine.picture_reader import Written
from tests.adapters.conftest import build, cases_of

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
    found = adapter.parse(Written(ids, ended=True), Image.new("RGB", (9, 9)), ExtractOptions())
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
        ({"task": ASK, "instruction": "what </s_question> total?"}, "options.instruction"),
    ],
)
def test_a_task_that_cannot_be_done_is_refused(adapter: DonutAdapter, options: dict[str, Any], param: str) -> None:
    refused = adapter.prompt(ExtractOptions(**options))
    assert isinstance(refused, ItemRejected)
    assert refused.param == param
