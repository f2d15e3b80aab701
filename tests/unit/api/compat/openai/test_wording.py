"""What a model wrote, told apart as it comes."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.compat.openai.toolcalls import Call
from api.compat.openai.wording import Calling, Part, Reader, Thought, Words

CALLING = Calling({"look": {"type": "object"}})
CALL = '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>'
LOOK = Call("look", '{"at":"it"}')


def told(pieces: list[str], calling: Calling | None) -> list[Part]:
    """The parts of a text that comes in pieces, neighbours of one kind joined."""
    reader = Reader(calling)
    found = [part for piece in pieces for part in reader.more(piece)] + reader.end()
    joined: list[Part] = []
    for kind, some in groupby(found, type):
        parts = list(some)
        if kind is Call:
            joined += parts
        else:
            joined.append(kind("".join(part.text for part in parts if not isinstance(part, Call))))
    return joined


TEXTS: list[tuple[str, Calling | None, list[Part]]] = [
    ("Hello.", None, [Words("Hello.")]),
    ("Hello.", CALLING, [Words("Hello.")]),
    (" x < y, [1] ", CALLING, [Words(" x < y, [1] ")]),
    (CALL, None, [Words(CALL)]),
    (CALL, CALLING, [LOOK]),
    (f"I look.\n{CALL}", CALLING, [Words("I look."), LOOK]),
    (
        f"<think>\nHm, <b>.\n</think>\n\nI look. {CALL}{CALL}",
        CALLING,
        [Thought("Hm, <b>."), Words("I look."), LOOK, LOOK],
    ),
    (f"A {CALL} B", CALLING, [Words("A  B"), LOOK]),
    ("<think>\n\n</think>\n\nYes.", None, [Words("Yes.")]),
    ("<think>never\nended ", None, [Thought("never\nended")]),
    ("It is <think>no</think>.", None, [Words("It is <think>no</think>.")]),
    ("<thin ice>", None, [Words("<thin ice>")]),
    ('{"name": "look", "parameters": {"at": "it"}}', CALLING, [LOOK]),
    ('{"name": "none"}', CALLING, [Words('{"name": "none"}')]),
    ('{"at": 1', Calling({"look": {}}, only="look"), [Call("look", '{"at": 1')]),
    ('[{"name":"look","arguments":{"at":"it"}}]', Calling({"look": {}}, locked=True), [LOOK]),
    ('[{"name":"look","argu', Calling({"look": {}}, locked=True), [Words('[{"name":"look","argu')]),
    ("", None, []),
]


@pytest.mark.parametrize(("text", "calling", "parts"), TEXTS)
def test_a_text_has_the_same_parts_whole_and_letter_by_letter(
    text: str, calling: Calling | None, parts: list[Part]
) -> None:
    assert told([text], calling) == told(list(text), calling) == parts


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<tool", "_call>", '{"a": 1}', " ", "\n", "x", "[", "<"]), max_size=12
    )
)
def test_pieces_change_nothing(pieces: list[str]) -> None:
    assert told(pieces, CALLING) == told(["".join(pieces)], CALLING)


def test_words_are_told_at_once_and_a_call_at_its_end() -> None:
    reader = Reader(CALLING)
    assert reader.more("I look") == [Words("I look")]
    assert reader.more(" at") == [Words(" at")]
    assert reader.more("\n<tool_call>") == []
    assert reader.more(CALL.removeprefix("<tool_call>")) == []
    assert reader.end() == [LOOK]
