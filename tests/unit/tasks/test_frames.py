"""Frames between the Celery parent and its engine child."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.frames import MAX_FRAME, Decoder, encode

PART = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)
FRAMES = st.lists(st.lists(PART, min_size=1, max_size=4), max_size=5)


@given(FRAMES, st.integers(1, 40))
def test_frames_survive_any_cutting_of_the_stream(frames: list[list[object]], size: int) -> None:
    stream = b"".join(encode(*frame) for frame in frames)
    decoder = Decoder()

    seen = [frame for at in range(0, len(stream), size) for frame in decoder.feed(stream[at : at + size])]

    assert seen == frames


def test_an_unfinished_frame_waits_for_its_rest() -> None:
    data = encode("done", [["id", "succeeded", 0.5, None]])
    decoder = Decoder()

    assert list(decoder.feed(data[:-1])) == []
    assert list(decoder.feed(data[-1:])) == [["done", [["id", "succeeded", 0.5, None]]]]


def test_a_length_that_no_peer_sends_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        list(Decoder().feed(struct.pack(">I", MAX_FRAME + 1)))
