from __future__ import annotations

import pytest

from engine.generation.chat import Rendered


@pytest.mark.parametrize(
    ("prompt", "opening"),
    [
        ("<|im_start|>assistant\n<think>\n", "<think>\n"),
        ("<|im_start|>assistant\n<think>", "<think>"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", ""),
        ("<think>\n<|im_start|>assistant\n", ""),
        ("", ""),
    ],
)
def test_a_thought_that_the_template_begins_is_the_beginning_of_the_text(prompt: str, opening: str) -> None:
    assert Rendered(prompt).opening == opening
