from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine.generation.telling import Telling


def decode(tokens: list[int]) -> str:
    """Tokens that are bytes, as a byte-level tokenizer has them; those from 256 on are control tokens."""
    return bytes(token for token in tokens if token < 256).decode("utf-8", "replace")


def words(tokens: list[int]) -> str:
    """Tokens that are words behind a blank, as a sentence-piece tokenizer has them: the first blank is left out."""
    return "".join(f" w{token}" for token in tokens)[1:]


def told(telling: Telling, tokens: list[int]) -> list[str]:
    """What is said after each token, until a stop text."""
    said = []
    for token in tokens:
        stopped = telling.add(token)
        said.append(telling.said)
        if stopped:
            break
    return said


def test_half_a_character_waits_for_its_other_half() -> None:
    assert told(Telling(decode), list("aé🦉".encode())) == ["a", "a", "aé", "aé", "aé", "aé", "aé🦉"]


def test_blanks_between_words_are_kept_and_control_tokens_say_nothing() -> None:
    assert told(Telling(words), [1, 2, 3]) == ["w1", "w1 w2", "w1 w2 w3"]
    assert told(Telling(decode), [97, 300, 98]) == ["a", "a", "ab"]


def test_what_may_be_a_stop_text_is_held_back_until_it_is_known() -> None:
    assert told(Telling(decode, ["END"]), list(b"aENEND x")) == ["a", "a", "a", "aEN", "aEN", "aEN"]
    assert told(Telling(decode, ["END"]), list(b"aENx")) == ["a", "a", "a", "aENx"]


def test_of_several_stop_texts_the_first_in_the_text_counts() -> None:
    assert told(Telling(words, ["w3", "2 w3"]), [1, 2, 3])[-1] == "w1 w"


@given(st.binary(max_size=40), st.lists(st.text(min_size=1, max_size=3), max_size=3))
def test_whatever_comes_is_said_once_and_never_taken_back(raw: bytes, stops: list[str]) -> None:
    telling = Telling(decode, stops)
    said = told(telling, list(raw))
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(said))
    whole = raw.decode("utf-8", "replace")
    assert whole.startswith(telling.text)
    assert not said or telling.text.startswith(said[-1])
    found = [place for stop in stops if (place := whole.find(stop)) >= 0]
    if telling.stopped:
        assert not any(stop in telling.text for stop in stops)
        assert len(telling.text) == min(found)
    else:
        assert len(whole) - len(telling.text) <= 3


def test_a_text_begins_with_what_the_prompt_said_of_it_and_no_stop_is_looked_for_there() -> None:
    assert told(Telling(decode, ["<think>", "k>a"], "<think>"), list(b"abc")) == ["<think>a", "<think>ab", "<think>abc"]
    telling = Telling(decode, ["bc"], "<b")
    assert told(telling, list(b"abc")) == ["<ba", "<ba", "<ba"]
    assert telling.stopped
