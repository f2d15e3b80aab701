from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import InvalidOption
from catalog.options import ScoreOptions, parse_options
from catalog.schema import Spec
from catalog.terms import Verb


def spec(**tasks: Any) -> Spec:
    made = {"id": "m", "family": "fake", "tasks": {"score": {}, **tasks}, "parameters": 0, "max_length": 8}
    return Spec.model_validate(made)


ALL = spec(encode={"dims": 8, "token_dims": 4, "sparse_dims": 9, "outputs": ["dense", "sparse", "multivector"]})
ONE = spec(encode={"token_dims": 4, "outputs": ["multivector"]})
NONE = spec()


def test_a_model_of_three_outputs_scores_by_each_and_by_all() -> None:
    for mode in ("dense", "sparse", "multivector", "all"):
        found = parse_options(ALL, Verb.SCORE, {}, {"score_mode": mode})
        assert isinstance(found, ScoreOptions)
        assert found.score_mode == mode
    weighted = parse_options(ALL, Verb.SCORE, {}, {"score_weights": [1, 0, 0.5]})
    assert isinstance(weighted, ScoreOptions)
    assert weighted.score_weights == [1.0, 0.0, 0.5]
    parse_options(ONE, Verb.SCORE, {}, {"score_mode": "multivector"})


@pytest.mark.parametrize(
    ("model", "sent", "param"),
    [
        (NONE, {"score_mode": "dense"}, "score_mode"),
        (ONE, {"score_mode": "dense"}, "score_mode"),
        (ONE, {"score_mode": "all"}, "score_mode"),
        (ONE, {"score_weights": [1.0, 1.0, 1.0]}, "score_weights"),
        (ALL, {"score_mode": "dense", "score_weights": [1.0, 1.0, 1.0]}, "score_weights"),
        (ALL, {"score_weights": [0.0, 0.0, 0.0]}, "score_weights"),
        (ALL, {"score_weights": [1.0, -1.0, 1.0]}, "score_weights[1]"),
    ],
)
def test_what_a_model_cannot_score_by_is_refused(model: Spec, sent: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse_options(model, Verb.SCORE, {}, sent)
    assert refused.value.param == f"options.{param}"
