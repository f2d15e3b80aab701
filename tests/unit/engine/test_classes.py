from __future__ import annotations

import numpy as np
import pytest

from engine.classes import activation_of, combined, told

WINDOWS = [np.array(row, dtype=np.float32) for row in ([0.9, 0.1, 0.0], [0.2, 0.3, 0.5])]


def test_labels_that_exclude_each_other_have_the_mean_by_size() -> None:
    assert combined(WINDOWS, [3, 1], (), each=False).tolist() == pytest.approx([0.725, 0.15, 0.125])


def test_an_alarm_in_one_window_decides_for_all() -> None:
    assert combined(WINDOWS, [99, 1], (1, 2), each=False) is not None
    assert combined(WINDOWS, [99, 1], (1, 2), each=False).tolist() == pytest.approx([0.2, 0.3, 0.5])
    assert combined(WINDOWS, [1, 99], (0,), each=False).tolist() == pytest.approx([0.9, 0.1, 0.0])


def test_labels_that_do_not_exclude_each_other_have_their_highest() -> None:
    assert combined(WINDOWS, [1, 9], (), each=True).tolist() == pytest.approx([0.9, 0.3, 0.5])


def test_equal_scores_keep_the_order_of_the_labels() -> None:
    scores = np.array([0.25, 0.5, 0.25], dtype=np.float32)
    assert [one["label"] for one in told(("a", "b", "c"), scores)] == ["b", "a", "c"]
    assert [one["label"] for one in told(("a", "b", "c"), scores, wanted={"a", "c"}, top_k=1)] == ["a"]
    assert told(("a", "b", "c"), scores, threshold=0.6) == []


def test_the_config_says_how_logits_become_scores() -> None:
    assert activation_of(None, 3) == "softmax"
    assert activation_of(None, 1) == "sigmoid"
    assert activation_of("multi_label_classification", 3) == "sigmoid"
    assert activation_of("regression", 1) is None
