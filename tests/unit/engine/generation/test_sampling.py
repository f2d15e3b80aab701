from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from catalog.options.generate import GenerateOptions
from engine.errors import ItemRejected
from engine.generation.sampling import Sampler

LOGITS = torch.tensor([3.0, 2.0, 1.0, 0.0, -1.0])


def picks(count: int = 400, **options: Any) -> Counter[int]:
    sampler = Sampler(GenerateOptions(**{"temperature": 1.0, "seed": 1, **options}), [0], [4])
    return Counter(sampler.choose(LOGITS, None) for _ in range(count))


def test_samples_follow_the_probabilities() -> None:
    found, expected = picks(4000), LOGITS.softmax(0)
    for token in range(5):
        assert abs(found[token] / 4000 - float(expected[token])) < 0.03


@pytest.mark.parametrize(
    ("options", "possible"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.7}, {0, 1}),
        ({"temperature": 1e-6}, {0}),
        ({"temperature": 1e-30}, {0}),
        ({"temperature": 1e-320}, {0}),
        ({"temperature": 0.0}, {0}),
        ({"temperature": 0.0, "logit_bias": {"3": 4.0}}, {3}),
        ({"temperature": 0.0, "repetition_penalty": 2.0}, {1}),
        ({"min_tokens": 1, "logit_bias": {"4": 100.0, "2": 50.0}}, {2}),
    ],
)
def test_only_what_the_options_leave_is_drawn(options: dict[str, Any], possible: set[int]) -> None:
    assert set(picks(**options)) == possible


def test_penalties_count_what_was_said() -> None:
    sampler = Sampler(GenerateOptions(frequency_penalty=0.6, presence_penalty=0.0), [], [4])
    chosen = []
    for _ in range(4):
        chosen.append(sampler.choose(LOGITS, None))
        sampler.took(chosen[-1])
    # 3 - 0.6 n falls behind 2 with the second time.
    assert chosen == [0, 0, 1, 0]


def test_a_grammar_that_allows_nothing_is_an_error_of_its_item() -> None:
    sampler = Sampler(GenerateOptions(), [], [4])
    with pytest.raises(ItemRejected, match="allows no token"):
        sampler.choose(LOGITS, torch.zeros(5, dtype=torch.bool))


def test_an_end_comes_early_only_where_a_grammar_leaves_nothing_else() -> None:
    sampler = Sampler(GenerateOptions(min_tokens=3), [], [4])
    allowed = torch.tensor([False, False, False, True, True])
    assert sampler.choose(LOGITS + torch.tensor([0, 0, 0, 0, 9.0]), allowed) == 3
    assert sampler.choose(LOGITS, torch.tensor([False, False, False, False, True])) == 4


def test_each_item_of_a_job_draws_by_itself_and_the_first_with_the_jobs_own_seed() -> None:
    options = GenerateOptions(temperature=1.0, seed=7)

    def drawn(place: int) -> list[int]:
        sampler = Sampler(options, [], [4], place)
        return [sampler.choose(LOGITS, None) for _ in range(40)]

    own = torch.Generator().manual_seed(7)
    assert drawn(0) == [int(torch.multinomial(LOGITS.softmax(0), 1, generator=own)) for _ in range(40)]
    assert len({tuple(drawn(place)) for place in range(8)}) == 8
    assert drawn(3) == drawn(3)
