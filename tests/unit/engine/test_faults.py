"""What fake models are told to do wrong."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import ValidationError

from engine.adapters.base import LoadOptions
from engine.adapters.fake import FakeOptions
from engine.adapters.fake_generator import FakeGeneratorOptions
from engine.adapters.fake_parser import FakeParserOptions
from engine.errors import OutOfMemory
from engine.faults import AT_LOAD, AT_RUN, Fault, FaultRule, Faults, short_by_one


def faults(*rules: dict[str, Any]) -> Faults:
    return Faults([FaultRule.model_validate(rule) for rule in rules], threading.Event())


@pytest.mark.parametrize("family", [FakeParserOptions, FakeGeneratorOptions])
@pytest.mark.parametrize("kind", ["nan", "slow_load", "fail_load", "fail_restore"])
def test_a_fault_that_a_family_does_not_have_is_refused_with_those_that_it_has(
    family: type[LoadOptions], kind: str
) -> None:
    with pytest.raises(ValidationError, match=rf"no fault '{kind}'; it has crash, device_lost, error, hang"):
        family.model_validate({"faults": [{"kind": kind}]})


@pytest.mark.parametrize("family", [FakeOptions, FakeParserOptions, FakeGeneratorOptions])
def test_a_fault_that_nobody_has_is_refused(family: type[LoadOptions]) -> None:
    with pytest.raises(ValidationError, match="kind"):
        family.model_validate({"faults": [{"kind": "tired"}]})


@pytest.mark.parametrize(
    ("kind", "error"),
    [("oom", OutOfMemory), ("memory_error", MemoryError), ("error", RuntimeError), ("device_lost", RuntimeError)],
)
def test_a_run_fails_as_its_rule_says(kind: str, error: type[Exception]) -> None:
    found = faults({"kind": kind})
    with pytest.raises(error):
        found.meet(found.due(1, ["a"]), ["a"])


def test_a_lost_device_stays_lost() -> None:
    found = faults({"kind": "device_lost", "at_call": 1})
    for call in (1, 2):
        with pytest.raises(RuntimeError, match="CUDA error"):
            found.meet(found.due(call, []), [])


def test_rules_of_a_load_are_not_those_of_a_run() -> None:
    found = faults({"kind": "fail_load"}, {"kind": "oom"})
    assert [rule.kind for rule in found.due(1, (), AT_LOAD)] == [Fault.FAIL_LOAD]
    assert [rule.kind for rule in found.due(1, (), AT_RUN)] == [Fault.OOM]


def test_a_rule_that_is_bounded_applies_no_more_often() -> None:
    found = faults({"kind": "wrong_count", "times": 2})
    assert [short_by_one(found.due(call, [])) for call in range(1, 5)] == [True, True, False, False]
