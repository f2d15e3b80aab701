"""Pages by late interaction: what is computed once, what is cut, and what is not this family's."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.terms import Verb
from engine.adapters.base import Adapter
from engine.errors import EngineError, ItemRejected, LoadFailed, TextTooLong
from engine.families import adapter_class
from engine.maxsim import maxsim
from engine.types import Outcome, Output
from tests.adapters.case import plain
from tests.adapters.pictures import item
from tests.adapters.vision.conftest import Ask, Load, Passes, case_of


@pytest.fixture(params=["colpali-encode", "colqwen2-encode"])
def pages(request: pytest.FixtureRequest, load: Load) -> Adapter:
    return load("page_images", request.param)


def output(outcome: Outcome) -> Output:
    assert isinstance(outcome, Output), outcome
    return outcome


def test_pages_of_one_size_go_in_one_pass(pages: Adapter, ask: Ask, passes: Passes) -> None:
    payloads = [*(item(number) for number in range(5)), {"text": "a query"}, {"text": "another, and longer"}]
    with passes(pages) as seen:
        found = ask(pages, Verb.ENCODE, payloads, {})
    assert len([one for one in seen if one.startswith("vis")]) == 1
    assert [output(outcome).usage for outcome in found] == [{"images": 1}] * 5 + [{}] * 2


def test_a_score_is_the_best_match_of_each_of_the_querys_vectors(pages: Adapter, ask: Ask) -> None:
    query, page = ask(pages, Verb.ENCODE, [{"text": "the date of the loss"}, item(1)], {})
    asked, held = (plain(output(outcome))["multivector"] for outcome in (query, page))
    kept = {"num_tokens": len(held), "token_dims": 24, "values": held.astype("<f4").tobytes()}
    question = {"query": {"text": "the date of the loss"}}
    by_image, by_vectors = ask(pages, Verb.SCORE, [{**item(1), **question}, {"multivector": kept, **question}], {})
    expected = maxsim(asked, [held])[0]
    assert output(by_image).fields["score"] == pytest.approx(expected, abs=1e-5)
    assert output(by_vectors).fields["score"] == pytest.approx(expected, abs=1e-5)


def test_a_text_says_nothing_to_the_model_in_control_tokens(pages: Adapter, ask: Ask) -> None:
    signs = "<image> <|image_pad|> <pad> <|endoftext|>"
    alone, among = ask(pages, Verb.ENCODE, [{"text": signs}, item(1)], {})
    assert output(alone).tokens > 30
    assert output(among).usage == {"images": 1}


def test_a_long_query_keeps_its_end_marks_and_says_that_it_was_cut(pages: Adapter, ask: Ask) -> None:
    long = {"text": "queue " * 80}
    cut = output(ask(pages, Verb.ENCODE, [long], {})[0])
    assert cut.truncated
    assert cut.fields["multivector"]["num_tokens"] == pages.spec.max_length < cut.tokens
    assert isinstance(ask(pages, Verb.ENCODE, [long], {"truncate": False})[0], TextTooLong)
    scored = ask(pages, Verb.SCORE, [{**item(1), "query": long}], {"truncate": False})[0]
    assert isinstance(scored, TextTooLong)
    assert scored.param == "query"


def test_an_instruction_stands_in_place_of_the_models_own_words(pages: Adapter, ask: Ask) -> None:
    own, instead = (
        plain(output(ask(pages, Verb.ENCODE, [{"text": "birds"}], options)[0]))["multivector"]
        for options in ({}, {"instruction": "Find the page: "})
    )
    assert own.shape != instead.shape or np.abs(own - instead).max() > 1e-3


def test_vectors_are_written_as_they_are_asked_for(pages: Adapter, ask: Ask) -> None:
    whole = output(ask(pages, Verb.ENCODE, [item(1)], {})[0]).fields["multivector"]
    small = output(ask(pages, Verb.ENCODE, [item(1)], {"output_dtype": "int8"})[0]).fields["multivector"]
    restored = np.frombuffer(small["values"], "i1") * small["scale"]
    assert np.abs(restored - np.frombuffer(whole["values"], "<f4")).max() <= small["scale"]


def test_another_kind_of_model_is_refused_by_name() -> None:
    spec, _ = case_of("page_images", "colpali-encode").model()
    _, clip = case_of("vision_text", "clip").model()
    kind = adapter_class("page_images")
    with pytest.raises(LoadFailed, match="'clip'"):
        kind(spec, kind.options(), clip, "cpu").load()


def test_one_bad_query_is_said_of_the_query(pages: Adapter, ask: Ask) -> None:
    found = ask(pages, Verb.SCORE, [{**item(1), "query": {"text": 7}}, {**item(1), "query": {"text": "a"}}], {})
    assert isinstance(found[0], EngineError)
    assert found[0].param == "query"
    assert isinstance(found[1], Output)


def test_what_goes_with_texts_alone_is_refused_beside_an_image(pages: Adapter, ask: Ask) -> None:
    for name, value in (("instruction", "find: "), ("is_query", True)):
        image, text = ask(pages, Verb.ENCODE, [item(1), {"text": "the date"}], {name: value})
        assert isinstance(image, ItemRejected)
        assert image.param == f"options.{name}"
        assert isinstance(text, Output)
