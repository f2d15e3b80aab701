"""Jobs as rows: text made holdable, arrays written out, SQL for sets."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.store.rows import clean, columns, insert_sql, json_text, moment, text_array, unnest

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)


@given(ANY_TEXT)
def test_any_text_can_be_held_and_good_text_is_unchanged(text: str) -> None:
    cleaned = clean(text)

    cleaned.encode()
    assert "\0" not in cleaned
    assert len(cleaned) <= len(text)
    if "\0" not in text and not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert cleaned == text


def test_what_cannot_be_held_becomes_a_replacement_character() -> None:
    assert clean("a\0b\ud83dc") == "a�b�c"


def test_two_halves_of_one_character_become_that_character() -> None:
    assert clean("\ud83d\ude00") == "😀"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
                    max_leaves=8))  # fmt: skip
def test_any_value_becomes_json_that_postgres_takes(value: Any) -> None:
    text = json_text({"value": value})

    assert text is not None
    text.encode()
    assert "\0" not in json.dumps(json.loads(text), ensure_ascii=False)


def test_a_written_out_escape_is_not_taken_for_the_character() -> None:
    assert json.loads(json_text({"a": "\\u0000"}) or "") == {"a": "\\u0000"}


def test_no_value_is_no_json() -> None:
    assert json_text(None) is None


@pytest.mark.parametrize("seconds", [1e300, float("inf"), float("nan"), 253_402_300_800.0])
def test_a_time_beyond_the_calendar_is_its_end(seconds: float) -> None:
    assert moment(seconds) == datetime(9999, 1, 1, tzinfo=UTC)


def test_a_time_keeps_its_microseconds() -> None:
    assert moment(1_700_000_000.123456) == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)


def test_an_array_of_texts_quotes_what_must_be_quoted() -> None:
    assert text_array(["a", 'b"c', "d\\e", ""]) == '{"a","b\\"c","d\\\\e",""}'
    assert text_array([]) == "{}"


def test_a_set_is_one_statement_with_one_parameter_for_each_column() -> None:
    two = columns(id="uuid", options="text>jsonb")

    assert unnest(two) == "unnest(%(id)b::uuid[], %(options)b::text[]) AS t(id, options)"
    assert insert_sql(two, "RETURNING id") == (
        "INSERT INTO jobs (id, options) SELECT t.id, t.options::jsonb "
        "FROM unnest(%(id)b::uuid[], %(options)b::text[]) AS t(id, options) RETURNING id"
    )
