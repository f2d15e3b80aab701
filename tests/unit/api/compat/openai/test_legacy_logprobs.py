"""Log probabilities in parallel lists."""

from __future__ import annotations

from typing import Any

import pytest

from api.compat.openai.legacy_logprobs import LegacyLogprobs, legacy


def entry(raw: bytes, logprob: float = -1.0, top: list[tuple[bytes, float]] | None = None) -> dict[str, Any]:
    own: dict[str, Any] = {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}
    return {**own, "top_logprobs": [entry(other, value) for other, value in top or []]}


def test_each_token_has_its_place_in_the_text() -> None:
    found = legacy([entry(b"Once"), entry(" ünder".encode()), entry(b".")], "Once ünder.", 0)
    LegacyLogprobs.model_validate(found)
    assert found == {
        "tokens": ["Once", " ünder", "."],
        "token_logprobs": [-1.0, -1.0, -1.0],
        "top_logprobs": None,
        "text_offset": [0, 4, 10],
    }


def test_the_parts_of_a_character_have_one_place_and_are_told_apart() -> None:
    euro = "€".encode()
    found = legacy([entry(b"a"), entry(euro[:1]), entry(euro[1:]), entry(b"b")], "a€b", 0)
    assert found["tokens"] == ["a", "bytes:\\xe2", "bytes:\\x82\\xac", "b"]
    assert found["text_offset"] == [0, 1, 1, 2]


def test_what_a_stop_cut_off_is_at_the_end() -> None:
    assert legacy([entry(b"a"), entry(b"STOP"), entry(b"ped")], "a", 0)["text_offset"] == [0, 1, 1]


def test_the_likeliest_are_told_with_the_one_that_was_chosen() -> None:
    found = legacy([entry(b"b", -2.0, [(b"a", -0.5), (b"c", -1.0)])], "b", 2)
    assert found["top_logprobs"] == [pytest.approx({"a": -0.5, "b": -2.0, "c": -1.0})]
