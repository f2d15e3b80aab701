"""The name that was meant."""

from __future__ import annotations

import pytest

from catalog.errors import nearest, suggestion


@pytest.mark.parametrize(
    ("said", "known", "meant"),
    [
        ("lables", ["tables", "labels", "task"], "labels"),
        ("max_token", ["min_tokens", "max_tokens"], "max_tokens"),
        ("all-minilm-l6-v2", ["a/all-MiniLM-L6-v2", "b/all-MiniLM-L12-v2"], "a/all-MiniLM-L6-v2"),
    ],
)
def test_the_nearest_comes_first(said: str, known: list[str], meant: str) -> None:
    assert nearest(said, known)[0] == meant


def test_nothing_is_near_to_nonsense() -> None:
    assert nearest("qqqq", ["labels", "tables"]) == []


def test_so_many_are_told_and_each_once() -> None:
    assert nearest("model-1", [f"org/model-{n}" for n in range(9)], 3) == sorted(
        nearest("model-1", [f"org/model-{n}" for n in range(9)], 3), key=lambda name: name != "org/model-1"
    )
    assert len(nearest("model-1", [f"org/model-{n}" for n in range(9)], 3)) == 3


def test_a_message_ends_with_what_may_have_been_meant() -> None:
    assert suggestion("label", {"labels": 1, "tables": 2}) == "; did you mean 'labels'?"
    assert suggestion("qqqq", ["labels"]) == "."
    assert suggestion("qqqq", ["labels"], "; it takes: labels.") == "; it takes: labels."
