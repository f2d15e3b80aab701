"""From TEI's /predict and Hugging Face's calls to extract jobs, and back to labels."""

from __future__ import annotations

from typing import Any

import pytest

from api.compat.failures import JobFailed
from api.compat.tei.predict import PREDICT
from catalog.errors import RoostError
from tests.unit.api.compat.ends import ended

ROW = {"classifications": [{"label": "calm", "score": 0.2}, {"label": "angry", "score": 0.8}], "tokens": 3}
BEST_FIRST = [{"label": "angry", "score": 0.8}, {"label": "calm", "score": 0.2}]
FAILED = {"error": {"code": "not_finite", "message": "No.", "retryable": False}}


def told(body: dict[str, Any], rows: list[dict[str, Any]] | None = None) -> list[Any]:
    return PREDICT.to_reply(ended("extract", rows or [ROW]), body)


@pytest.mark.parametrize(
    ("inputs", "items"), [("a", ["a"]), (["a"], ["a"]), ([["a"]], ["a"]), ([["a"], ["b"], ["c"]], ["a", "b", "c"])]
)
def test_texts_become_the_items_of_an_extract_job(inputs: Any, items: list[str]) -> None:
    raw = PREDICT.to_job("org/m", {"inputs": inputs, "truncate": True}).raw
    assert raw == {"verb": "extract", "model": "org/m", "items": items, "options": {}}


def test_parameters_are_options() -> None:
    given = {"candidate_labels": ["x"], "multi_label": True, "hypothesis_template": "{}?", "top_k": 2}
    asked = PREDICT.to_job("org/m", {"inputs": "a", "parameters": given})
    assert asked.raw["options"] == {"labels": ["x"], "multi_label": True, "hypothesis_template": "{}?", "top_k": 2}
    assert asked.names["options.labels"] == "parameters.candidate_labels"


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"inputs": ["a", "b"]}, "inputs", "pair of texts"),
        ({"inputs": [["a"], ["b", "c"]]}, "inputs[1]", "pair of texts"),
        ({"inputs": " "}, "inputs", "empty or blank"),
        ({"inputs": [["a"], [""]]}, "inputs[1]", "empty or blank"),
        ({"inputs": "a", "raw_scores": True}, "raw_scores", "is not taken"),
        ({"inputs": "a", "parameters": {"function_to_apply": "none"}}, "parameters.function_to_apply", "is not taken"),
        ({"inputs": "a", "parameters": {"topk": 1}}, "parameters.topk", "did you mean 'top_k'?"),
    ],
)
def test_what_is_wrong_is_named_as_the_caller_wrote_it(body: Any, param: str, said: str) -> None:
    with pytest.raises(RoostError) as raised:
        PREDICT.to_job("org/m", body)
    assert raised.value.param == param
    assert said in raised.value.message


@pytest.mark.parametrize("inputs", [[], {}, 3, [[]], [["a"], []], ["a", "b", "c"], [3]])
def test_other_forms_are_refused_at_inputs(inputs: Any) -> None:
    with pytest.raises(RoostError) as raised:
        PREDICT.to_job("org/m", {"inputs": inputs})
    assert str(raised.value.param).startswith("inputs")


def test_labels_have_the_shape_of_the_inputs() -> None:
    assert told({"inputs": "a"}) == told({"inputs": ["a"]}) == BEST_FIRST
    assert told({"inputs": [["a"], ["b"]]}, [ROW, ROW]) == [BEST_FIRST, BEST_FIRST]


def test_huggingfaces_client_gets_a_list_around_labels_unless_they_are_its_own() -> None:
    assert told({"inputs": "a", "parameters": {}}) == [BEST_FIRST]
    assert told({"inputs": "a", "parameters": {"candidate_labels": ["x"]}}) == BEST_FIRST


def test_a_text_without_labels_fails_the_call() -> None:
    with pytest.raises(JobFailed) as raised:
        told({"inputs": [["a"], ["b"], ["c"]]}, [ROW, FAILED, ROW])
    assert raised.value.param == "inputs[1]"
