from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import UnexpectedReply
from roost.events import Event, EventReader, Heard

STREAM = (
    ": a comment\n\n"
    'event: queued\nid: 1\ndata: {"id": "j"}\n\n'
    'event: delta\r\ndata: {"item": 0, "start": 0, "text": "é🦉"}\r\n\r\n'
    'event:succeeded\rid:2\rdata: {"id":\rdata: "j"}\r\r\n'
).encode()
EVENTS = [
    Event("queued", {"id": "j"}, "1"),
    Event("delta", {"item": 0, "start": 0, "text": "é🦉"}),
    Event("succeeded", {"id": "j"}, "2"),
]


@given(st.lists(st.integers(0, len(STREAM))))
def test_a_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    reader = EventReader()
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    assert [event for piece in pieces for event in reader.feed(piece)] == EVENTS


@pytest.mark.parametrize("data", ["no JSON", "[1]"])
def test_data_that_is_no_object_is_told_as_another_server(data: str) -> None:
    with pytest.raises(UnexpectedReply, match="Roost"):
        list(EventReader().feed(f"data: {data}\n\n".encode()))


def delta(start: int, text: str, item: int = 0) -> Event:
    return Event("delta", {"item": item, "start": start, "text": text})


def test_texts_that_begin_again_after_a_reconnect_are_told_once() -> None:
    heard = Heard()
    sent = [delta(0, "one "), delta(4, "two"), delta(0, "one "), delta(0, "one two th"), delta(10, "ree")]
    told = [new for event in sent if (new := heard.new(event)) is not None]
    assert [(event.start, event.text) for event in told] == [(0, "one "), (4, "two"), (7, " th"), (10, "ree")]


def test_each_item_has_a_text_of_its_own() -> None:
    heard = Heard()
    assert heard.new(delta(0, "a", item=0)) is not None
    assert heard.new(delta(0, "a", item=1)) is not None
    assert heard.new(delta(0, "a", item=1)) is None


def test_the_last_id_is_that_of_the_last_state() -> None:
    heard = Heard()
    heard.new(Event("running", {}, "3"))
    heard.new(delta(0, "a"))
    assert heard.last_id == "3"
