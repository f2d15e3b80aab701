"""What a sequence has said is told step by step, to those who asked for it."""

from __future__ import annotations

from collections.abc import Callable

from catalog.options import GenerateOptions
from engine.engine import Engine
from engine.types import Work
from tests.unit.engine.generating import generator, texts
from tests.unit.engine.recorder import Recorder

MakeWork = Callable[..., Work]
MakeEngine = Callable[..., Engine]


def test_the_pieces_of_a_text_follow_one_another_and_are_the_text(
    make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork
) -> None:
    engine = make_engine({"g": generator()})
    work = prompt("one two", options=GenerateOptions(stream=True, max_tokens=5))
    engine.submit([work])
    (text,) = texts(recorder, work)
    pieces = [piece for call in recorder.pieces for piece in call]
    assert len(pieces) == 5
    assert [piece.start for piece in pieces] == [sum(len(p.text) for p in pieces[:n]) for n in range(5)]
    assert "".join(piece.text for piece in pieces) == text
    assert {(piece.work, piece.index) for piece in pieces} == {(work.id, 0)}


def test_who_did_not_ask_hears_the_end_alone(make_engine: MakeEngine, recorder: Recorder, prompt: MakeWork) -> None:
    engine = make_engine({"g": generator(new_tokens=3)})
    quiet = prompt("one", options=GenerateOptions(max_tokens=3))
    engine.submit([quiet])
    assert len(texts(recorder, quiet)[0].split()) == 3
    assert recorder.pieces == []
