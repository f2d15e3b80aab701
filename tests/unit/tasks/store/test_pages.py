"""Cursors of lists."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import InvalidRequest
from tasks.store.pages import decode_cursor, encode_cursor


@given(st.uuids())
def test_a_cursor_leads_back_to_its_job(id_: UUID) -> None:
    cursor = encode_cursor(id_)

    assert decode_cursor(cursor) == id_
    assert cursor.isascii()
    assert not set(cursor) & set("+/= &?#%")


@given(st.text(max_size=40))
def test_a_text_that_is_no_cursor_is_a_bad_request(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cursor") as caught:
        decode_cursor(text)
    assert caught.value.param == "cursor"


@pytest.mark.parametrize("change", [lambda c: c + "A", lambda c: c[:-1], lambda c: c + "=", lambda c: c[:-1] + "B"])
def test_a_cursor_that_was_tampered_with_is_a_bad_request(change: object) -> None:
    assert callable(change)
    with pytest.raises(InvalidRequest):
        decode_cursor(change(encode_cursor(UUID(int=5))))
