"""What is under a head, and what comes after it."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.heads import activation_path, reads_text_alone


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "deberta-v2"}, True),
        ({"model_type": "layoutlmv3"}, False),
        ({"model_type": "bert-of-another-kind"}, False),
        ({"model_type": "new", "auto_map": {"AutoModelForSequenceClassification": "own.Model"}}, True),
        ({}, True),
    ],
)
def test_a_body_reads_texts_alone_where_it_is_known_or_brings_its_own_code(
    config: dict[str, Any], expected: bool
) -> None:
    assert reads_text_alone(config) is expected


def test_the_librarys_own_config_comes_before_the_models_and_a_sigmoid_last() -> None:
    old = {"sbert_ce_default_activation_function": "a.Old"}
    own = {**old, "sentence_transformers": {"activation_fn": "a.Own"}}
    assert activation_path({"activation_fn": "a.Library"}, own) == "a.Library"
    assert activation_path({}, own) == "a.Own"
    assert activation_path({}, old) == "a.Old"
    assert activation_path({}, {"sentence_transformers": "junk"}).endswith(".Sigmoid")
