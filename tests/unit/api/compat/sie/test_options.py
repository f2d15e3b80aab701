from __future__ import annotations

from typing import Any

import pytest

from api.compat.sie.options import given
from catalog.errors import InvalidOption
from catalog.terms import Verb
from tasks.errors import InvalidRequest


def read(verb: Verb, options: Any, model: str = "acme/owl", **own: Any) -> Any:
    return given(verb, model, {"options": options, **own}, own={name: name for name in own})


@pytest.mark.parametrize(
    ("verb", "sent", "meant"),
    [
        (Verb.ENCODE, {"is_query": True, "normalize": False}, {"is_query": True, "normalize": False}),
        (Verb.ENCODE, {"overflow_policy": "error"}, {"truncate": False}),
        (Verb.ENCODE, {"muvera": False, "pooling": None}, {}),
        (Verb.ENCODE, {"output_dtype": "binary"}, {"output_dtype": "ubinary"}),
        (Verb.SCORE, {"score_mode": "colbert"}, {"score_mode": "multivector"}),
        (Verb.SCORE, {"score_mode": "hybrid", "score_weights": {"dense": 1}},
         {"score_mode": "all", "score_weights": [1, 0.2, 0.4]}),
        (Verb.EXTRACT, {"timestamp_granularities": ["segment", "word"]}, {"timestamps": "word"}),
        (Verb.EXTRACT, {"classification_type": "multi-label"}, {"multi_label": True}),
        (Verb.EXTRACT, {"score_threshold": 0.05}, {"score_threshold": 0.05}),
        (Verb.GENERATE, {"lora_id": "sql"}, {"lora": "sql"}),
        (Verb.GENERATE, {"top_k": 3}, {"top_k": 3}),
    ],
)  # fmt: skip
def test_options_of_the_peer_mean_ours(verb: Verb, sent: dict[str, Any], meant: dict[str, Any]) -> None:
    assert read(verb, sent).options == meant


def test_what_is_unknown_is_passed_on_for_the_check_of_all_options() -> None:
    found = read(Verb.ENCODE, {"normalise": True})
    assert found.options == {"normalise": True}
    assert found.names["options"] == "options"


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        (Verb.ENCODE, "muvera"),
        (Verb.ENCODE, "smve"),
        (Verb.ENCODE, "pooling"),
        (Verb.ENCODE, "query_template"),
        (Verb.ENCODE, "doc_template"),
        (Verb.ENCODE, "lora_id"),
        (Verb.SCORE, "max_seq_length"),
        (Verb.EXTRACT, "label_groups"),
        (Verb.EXTRACT, "overflow_policy"),
        (Verb.EXTRACT, "prune_threshold"),
    ],
)
def test_options_that_are_not_here_are_refused_with_the_reason(verb: Verb, name: str) -> None:
    with pytest.raises(InvalidOption, match=f"'{name}' is not taken: .+") as caught:
        read(verb, {name: "x"})
    assert caught.value.param == f"options.{name}"


@pytest.mark.parametrize(
    ("verb", "sent"),
    [
        (Verb.ENCODE, {"overflow_policy": "shrink"}),
        (Verb.SCORE, {"score_mode": 3}),
        (Verb.SCORE, {"score_weights": {"dens": 1}}),
        (Verb.EXTRACT, {"timestamp_granularities": "word"}),
        (Verb.EXTRACT, {"timestamp_granularities": []}),
        (Verb.EXTRACT, {"classification_type": "multi"}),
    ],
)
def test_a_wrong_word_is_refused_by_the_name_that_was_sent(verb: Verb, sent: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        read(verb, sent)
    assert caught.value.param == f"options.{next(iter(sent))}"


def test_what_is_said_twice_is_refused() -> None:
    with pytest.raises(InvalidOption, match="given twice: 'instruction'"):
        read(Verb.SCORE, {"instruction": "b"}, instruction="a")
    with pytest.raises(InvalidOption, match=r"given twice: 'options\.truncate'"):
        read(Verb.ENCODE, {"truncate": True, "overflow_policy": "error"})


def test_errors_name_the_field_that_was_sent() -> None:
    body = {"params": {"output_types": ["dense"], "options": {"overflow_policy": "error"}}}
    found = given(Verb.ENCODE, "m", body, inside="params", own={"output_types": "output_types"})
    assert found.names["options.output_types"] == "params.output_types"
    assert found.names["options.truncate"] == "params.options.overflow_policy"
    assert found.names["options"] == "params.options"


@pytest.mark.parametrize(
    ("path", "profile", "name"),
    [
        ("acme/owl", None, "acme/owl"),
        ("acme__owl", None, "acme/owl"),
        ("acme__owl:small", None, "acme/owl:small"),
        ("acme/owl", "default", "acme/owl"),
        ("acme/owl", "small", "acme/owl:small"),
        ("acme/owl:small", "small", "acme/owl:small"),
        ("acme/o__l", None, "acme/o__l"),
    ],
)
def test_a_model_and_its_profile_are_one_name(path: str, profile: str | None, name: str) -> None:
    assert read(Verb.ENCODE, {"profile": profile}, path).model == name


@pytest.mark.parametrize("profile", ["large", "default", 3, ""])
def test_profiles_that_differ_or_are_none_are_refused(profile: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        read(Verb.ENCODE, {"profile": profile}, "acme/owl:small")
    assert caught.value.param == "options.profile"


def test_options_that_are_no_object_are_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(Verb.ENCODE, ["normalize"])
    assert caught.value.param == "options"
