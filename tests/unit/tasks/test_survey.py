"""What a survey says, from what the script answers."""

from __future__ import annotations

import pytest

from tasks.survey import Place, Survey, Waiting, pack_place, read_survey


def test_rows_and_places_are_read_as_they_were_told() -> None:
    waiting = [2, b"org/m:fast", 7, b"1.5", 1, b"", 1, b"0"]
    places = [b"w@host", pack_place({"org/m": 2.0, "new": None}, 40.0)]
    assert read_survey(["a", "b"], waiting, places) == Survey(
        (Waiting("b", "org/m:fast", 7, 1.5), Waiting("a", "", 1, 0.0)),
        (Place("w@host", {"org/m": 2.0, "new": None}, 40.0),),
    )


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01", b"\x92\x90\x01", b"\x92\x80\xa1x", b"\x93\x80\x01\x01"])
def test_a_place_that_cannot_be_read_has_no_models(data: bytes) -> None:
    assert read_survey([], [], [b"w", data]).places == (Place("w", {}),)


def test_what_a_worker_declines_is_read_as_it_was_told() -> None:
    data = pack_place({}, 0.0, {"large", "unknown"})
    assert read_survey([], [], [b"w", data]).places == (Place("w", {}, declined=frozenset({"large", "unknown"})),)
