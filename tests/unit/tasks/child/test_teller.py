"""Texts are told as they grow, and from their beginning now and then."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
import redis

from engine.types import Piece as Made
from tasks.child.teller import MOST_WHOLE, WHOLE_EVERY_S, WHOLE_FIRST_S, Teller
from tasks.child.wakes import Wakes
from tasks.notices import Piece

JOB = UUID(int=7)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def teller(clock: Clock) -> Teller:
    # Its thread does not run here, so Valkey is never asked.
    return Teller(Wakes(redis.Redis(port=1)), clock=clock)


def made(start: int, text: str, index: int = 0) -> Made:
    return Made(str(JOB), index, start, text)


def test_what_gathers_is_told_as_one_piece(teller: Teller) -> None:
    teller.put([made(0, "one")])
    teller.put([made(3, " two")])
    assert teller.due() == [Piece(JOB, 0, 0, "one two")]
    teller.put([made(7, " three")])
    assert teller.due() == [Piece(JOB, 0, 7, " three")]
    assert teller.due() == []


def test_a_text_is_told_from_its_beginning_now_and_then(teller: Teller, clock: Clock) -> None:
    teller.put([made(0, "one")])
    teller.due()
    clock.now += WHOLE_EVERY_S
    teller.put([made(3, " two")])
    assert teller.due() == [Piece(JOB, 0, 0, "one two")]
    teller.put([made(7, "!")])
    assert teller.due() == [Piece(JOB, 0, 7, "!")]


def test_a_young_text_is_told_whole_more_often(teller: Teller, clock: Clock) -> None:
    teller.put([made(0, "")])
    whole = []
    for tick in range(1, 400):
        clock.now = 100.0 + tick / 100
        teller.put([made(tick - 1, "x")])
        whole += [tick / 100 for piece in teller.due() if piece.start == 0]
    gaps = [after - before for before, after in pairwise(whole[1:])]
    assert whole[1] < 2 * WHOLE_FIRST_S
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(WHOLE_EVERY_S, abs=0.02)


def test_a_very_long_text_is_not_told_again(teller: Teller, clock: Clock) -> None:
    teller.put([made(0, "x" * MOST_WHOLE)])
    teller.due()
    clock.now += WHOLE_EVERY_S
    teller.put([made(MOST_WHOLE, "y")])
    assert teller.due() == [Piece(JOB, 0, MOST_WHOLE, "y")]


def test_a_job_that_runs_again_begins_anew(teller: Teller) -> None:
    teller.put([made(0, "first try")])
    teller.due()
    teller.put([made(0, "second")])
    assert teller.due() == [Piece(JOB, 0, 0, "second")]


def test_items_have_texts_of_their_own(teller: Teller) -> None:
    teller.put([made(0, "a", 0), made(0, "b", 1)])
    assert teller.due() == [Piece(JOB, 0, 0, "a"), Piece(JOB, 1, 0, "b")]


def test_a_job_that_is_over_is_forgotten(teller: Teller) -> None:
    teller.put([made(0, "a")])
    teller.forget([str(JOB)])
    assert teller.due() == []
