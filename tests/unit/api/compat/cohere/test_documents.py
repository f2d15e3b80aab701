"""Texts and objects as documents."""

from __future__ import annotations

from typing import Any

import pytest

from api.compat.cohere.documents import shown, texts_of
from catalog.errors import RoostError


def test_fields_are_read_in_their_order_and_absent_ones_passed_over() -> None:
    documents: list[Any] = [{"a": "1", "b": "2"}, {"b": "2"}, {"a": "1", "b": None}]
    assert texts_of(documents, ["b", "a"]) == ["2\n1", "2", "1"]


def test_a_text_is_read_whatever_fields_are_named() -> None:
    assert texts_of(["x"], ["title"]) == ["x"]


@pytest.mark.parametrize(
    ("documents", "fields", "param"),
    [
        (["a", ""], None, "documents[1]"),
        ([{"a": " "}], ["a"], "documents[0]"),
        ([{"a": "x"}], None, "documents[0]"),
        ([{"a": "x", "b": ["y"]}], ["a", "b"], "documents[0].b"),
    ],
)
def test_a_document_that_cannot_be_read_is_named(documents: list[Any], fields: list[str], param: str) -> None:
    with pytest.raises(RoostError) as raised:
        texts_of(documents, fields)
    assert raised.value.param == param


def test_an_object_is_shown_as_it_was_sent() -> None:
    assert shown("x", "x") == {"text": "x"}
    assert shown({"title": "x", "n": 1}, "x") == {"text": "x", "title": "x", "n": 1}
    assert shown({"text": "x", "title": "y"}, "y") == {"text": "x", "title": "y"}
