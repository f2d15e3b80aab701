from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from catalog.options import GenerateOptions
from engine.errors import ItemRejected, LoadFailed, LoadReason, ModelFailed
from engine.vllm_engine import BESIDE, dead, open_engine, refusal, sampling_of, share

GIB = 2**30


def options(**given: object) -> GenerateOptions:
    return GenerateOptions.model_validate(given)


def test_the_share_of_the_card_is_the_lease_without_what_vllm_does_not_count() -> None:
    assert share(9 * GIB, 80 * GIB) == 0.1
    found = share(BESIDE + 7 * GIB, 24 * GIB)
    assert found * 24 * GIB <= 7 * GIB
    assert found == pytest.approx(7 / 24, abs=1e-4)


@pytest.mark.parametrize("lease", [BESIDE, 100 * GIB])
def test_a_lease_that_is_no_share_is_refused(lease: int) -> None:
    with pytest.raises(LoadFailed, match="'bytes'") as raised:
        share(lease, 80 * GIB)
    assert raised.value.reason is LoadReason.CONFIG


def test_options_that_nobody_has_sent_are_greedy() -> None:
    assert sampling_of(options(), 7) == {
        "max_tokens": 7,
        "min_tokens": 0,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop": [],
    }


def test_every_option_of_a_sample_has_its_place() -> None:
    given = options(
        temperature=0.7, top_p=0.9, top_k=40, seed=-3, stop=["END", "\n"], min_tokens=9, logit_bias={"5": -2},
        frequency_penalty=0.5, presence_penalty=-0.5, repetition_penalty=1.5, logprobs=True, top_logprobs=3,
    )  # fmt: skip
    found = sampling_of(given, 8)
    assert found == {
        "max_tokens": 8,
        "min_tokens": 8,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 2**63 - 3,
        "stop": ["END", "\n"],
        "logit_bias": {5: -2},
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "repetition_penalty": 1.5,
        "logprobs": 3,
    }


def test_each_item_of_a_job_has_a_seed_of_its_own() -> None:
    seeds = [sampling_of(options(seed=5), 8, place)["seed"] for place in range(4)]
    assert seeds[0] == 5
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert "seed" not in sampling_of(options(), 8, 3)


@pytest.mark.parametrize(
    ("grammar", "expected"),
    [
        ({"json_schema": {"type": "object"}}, {"json": json.dumps({"type": "object"})}),
        ({"json_schema": True}, {"json": "{}"}),
        ({"regex": "[ab]+"}, {"regex": "[ab]+"}),
        ({"lark": "start: /x/"}, {"grammar": "start: /x/"}),
        ({"choice": ["yes", "no"]}, {"choice": ["yes", "no"]}),
    ],
)
def test_a_grammar_is_kept_by_vllm(grammar: dict[str, object], expected: dict[str, object]) -> None:
    assert sampling_of(options(grammar=grammar), 4)["structured_outputs"] == expected


class VLLMClientError(Exception):
    """By its name, what vLLM raises for a request that is wrong."""


class EngineDeadError(Exception):
    """By its name, what vLLM raises once its core has ended."""


def test_what_vllm_refuses_is_the_items_fault_and_all_else_the_models() -> None:
    refused = refusal("m", VLLMClientError("The grammar has no start.\nmore"))
    assert isinstance(refused, ItemRejected)
    assert refused.message == "vLLM refused the item: The grammar has no start."
    assert isinstance(refusal("m", TypeError("secret")), ModelFailed)
    assert dead(EngineDeadError())
    assert not dead(VLLMClientError())


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed here")
def test_without_vllm_the_load_says_what_to_install() -> None:
    with pytest.raises(LoadFailed, match=r"pip install 'roost\[vllm\]'") as raised:
        open_engine("cuda:0", 8 * GIB, {})
    assert raised.value.reason is LoadReason.DEPENDENCY
