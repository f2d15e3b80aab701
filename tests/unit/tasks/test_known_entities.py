"""Entities that come with a text, for models that say what is between them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tasks.errors import InvalidRequest
from tasks.items import ItemRequest, as_payload
from tasks.request import parse_request

TEXT = "\U0001d400da works at ACME"
ADA = {"start": 0, "end": 3, "label": "person"}
ACME = {"start": 13, "end": 17, "label": "company"}


def item(**fields: Any) -> ItemRequest:
    return ItemRequest.model_validate(fields)


def test_entities_of_a_text_reach_the_adapter_without_their_texts() -> None:
    found = item(id="a", text=TEXT, entities=[{**ADA, "text": "\U0001d400da", "score": 0.9}, {**ACME, "score": 1}])
    assert as_payload(found) == {
        "id": "a",
        "text": TEXT,
        "entities": [{**ADA, "score": 0.9}, {**ACME, "score": 1}],
    }


def test_a_text_without_entities_and_one_with_none_found_are_told_apart() -> None:
    assert "entities" not in as_payload(item(text=TEXT))
    assert as_payload(item(text=TEXT, entities=[]))["entities"] == []


def test_a_model_is_told_by_the_kinds_that_the_item_holds_entities() -> None:
    assert item(text=TEXT, entities=[ADA]).kinds == ("text", "entities")


@pytest.mark.parametrize(
    "fields",
    [
        {"entities": [ADA]},
        {"document": {"data": b"x"}, "entities": [ADA]},
        {"text": TEXT, "entities": [{**ADA, "start": -1}]},
        {"text": TEXT, "entities": [{**ADA, "end": 0}]},
        {"text": TEXT, "entities": [{**ADA, "start": 3}]},
        {"text": TEXT, "entities": [ADA, {**ACME, "end": 18}]},
        {"text": TEXT, "entities": [{**ADA, "text": "Ada"}]},
        {"text": TEXT, "entities": [{**ADA, "score": 1.1}]},
        {"text": TEXT, "entities": [{"start": 0, "end": 3}]},
        {"text": TEXT, "entities": [{**ADA, "colour": "red"}]},
        {"text": TEXT, "entities": [ADA] * 1001},
    ],
)
def test_entities_that_are_not_of_the_text_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        item(**fields)


def test_what_is_wrong_with_an_entity_is_said_with_its_place() -> None:
    body = {"verb": "extract", "model": "m", "items": [{"text": TEXT, "entities": [ADA, {**ACME, "end": 18}]}]}
    with pytest.raises(InvalidRequest, match="17 characters") as caught:
        parse_request(body, 10)
    assert caught.value.param == "items[0].entities[1]"
