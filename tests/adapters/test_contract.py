"""What every family promises, checked on every family there is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import orjson
import psutil
import pytest
from pydantic import ValidationError

from api.media import Media, dumps
from api.results import rows_of
from api.schemas import ResultItem, Usage
from catalog.errors import InvalidOption
from catalog.options import option_names, parse_options
from catalog.options.families import unread
from engine.adapters.base import Adapter, Part, StepAdapter, TokenSequence
from engine.device import CpuDevice
from engine.errors import EngineError
from engine.families import adapter_class
from engine.types import Outcome, Output
from tasks.rendering import Encoding
from tasks.results import pack_rows
from tests.adapters.case import Case, agree
from tests.adapters.conftest import FAMILIES, answers, batch, cases_of
from tests.adapters.watched import BY_THE_DOOR, read_options_of

MARGIN = 24 * 2**20
"""Bytes of resident memory that allocators may keep over a cycle of load, run, unload."""


def outputs(found: list[Outcome]) -> list[Output]:
    for outcome in found:
        assert isinstance(outcome, Output), outcome
    return [outcome for outcome in found if isinstance(outcome, Output)]


def same(case: Case, one: Output, other: Output) -> None:
    assert agree(case.found(one), case.found(other), case.tolerance) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_cases(family: str) -> None:
    assert cases_of(family), f"engine/adapters/{family}.py has no cases: write tests/adapters/families/{family}.py"


def test_all_cases_have_a_family() -> None:
    assert {file.stem for file in (Path(__file__).parent / "families").glob("*.py")} == set(FAMILIES)


def test_a_case_says_why_it_has_no_reference(case: Case) -> None:
    assert case.reference is not None or case.why_no_reference


def test_a_batch_equals_its_items_alone(adapter: Adapter, case: Case) -> None:
    items = case.items()
    for item, together in zip(items, outputs(answers(adapter, case, items)), strict=True):
        same(case, together, outputs(answers(adapter, case, [item]))[0])


def test_order_is_kept(adapter: Adapter, case: Case) -> None:
    items = case.items()
    forth = outputs(answers(adapter, case, items))
    back = outputs(answers(adapter, case, items[::-1]))
    for one, other in zip(forth, back[::-1], strict=True):
        same(case, one, other)
    assert any(agree(case.found(forth[0]), case.found(one), case.tolerance) for one in forth[1:]), "all answers are one"


def test_answers_equal_the_librarys_own_call(adapter: Adapter, case: Case, device: str) -> None:
    if case.reference is None:
        pytest.skip(case.why_no_reference)
    items = case.items()
    expected = case.reference(adapter.folder, device)(items)
    got = [case.found(output) for output in outputs(answers(adapter, case, items))]
    assert len(got) == len(expected)
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert agree(one, other, case.tolerance) is None, f"item {index}: {agree(one, other, case.tolerance)}"


def test_answers_are_what_the_api_says_of_them(adapter: Adapter, case: Case) -> None:
    for output in outputs(answers(adapter, case, case.items()[:3])):
        stored = pack_rows([{**output.fields, "tokens": output.tokens, "truncated": output.truncated}])
        for encoding in Encoding:
            (row,) = orjson.loads(dumps(rows_of(stored, Media.JSON, encoding)))
            ResultItem.model_validate(row)
        Usage.model_validate({"tokens": output.tokens, **output.usage})


def test_one_bad_item_fails_alone(adapter: Adapter, case: Case) -> None:
    first, second = case.items()[:2]
    alone = outputs(answers(adapter, case, [first, second]))
    for bad in case.bad:
        found = answers(adapter, case, [first, bad, second])
        assert isinstance(found[1], EngineError), found[1]
        assert not found[1].retryable
        same(case, alone[0], outputs([found[0]])[0])
        same(case, alone[1], outputs([found[2]])[0])


def test_a_batch_of_bad_items_alone_is_answered(adapter: Adapter, case: Case) -> None:
    bad = case.bad[0]
    assert all(isinstance(outcome, EngineError) for outcome in answers(adapter, case, [bad, bad]))


def test_unknown_load_options_are_refused(case: Case) -> None:
    family = adapter_class(case.model()[0].family)
    with pytest.raises(ValidationError):
        family.options.model_validate({**case.load, "no_such_option": 1})


def test_unknown_run_options_are_refused(case: Case) -> None:
    with pytest.raises(InvalidOption):
        parse_options(case.model()[0], case.verb, {}, {**case.options, "no_such_option": 1})


def test_every_option_that_the_door_lets_in_is_read_and_no_other(adapter: Adapter, case: Case) -> None:
    read = read_options_of(adapter, case)
    fields = set(parse_options(adapter.spec, case.verb, adapter.spec.run, case.options).model_fields_set)
    allowed = set(option_names(adapter.spec, case.verb)) - BY_THE_DOOR
    # A fake stands in for all families, and takes what they do.
    assert adapter.spec.family.startswith("fake") or allowed <= read | case.looks_past
    refused = unread(adapter.spec.family, case.verb)
    assert not refused & (read | fields)


def test_what_is_held_is_what_was_declared(adapter: Adapter) -> None:
    held = adapter.held()
    if held is None:
        pytest.skip("this family leaves measuring to the engine")
    declared = adapter.footprint().weights
    assert held * 0.95 <= declared <= held * 1.05


def test_unloading_gives_the_memory_back(case: Case, new_adapter: Callable[[Case], Adapter]) -> None:
    process, cpu = psutil.Process(), CpuDevice()
    adapter = new_adapter(case)
    after: list[int] = []
    for _ in range(5):
        adapter.load()
        answers(adapter, case, case.items()[:2])
        adapter.unload()
        cpu.clear()
        after.append(process.memory_info().rss)
    # A leak is in every round; what one round alone keeps is the allocator's.
    assert min(later - earlier for earlier, later in pairwise(after[2:])) < MARGIN


def test_an_unloaded_adapter_holds_nothing(case: Case, new_adapter: Callable[[Case], Adapter]) -> None:
    adapter = new_adapter(case)
    adapter.load()
    adapter.unload()
    assert not adapter.held()


def test_a_parked_model_takes_nothing_and_comes_back_the_same(
    case: Case, new_adapter: Callable[[Case], Adapter]
) -> None:
    adapter = new_adapter(case)
    adapter.load()
    before = outputs(answers(adapter, case, case.items()[:2]))
    held = adapter.held()
    if adapter.park() is None:
        adapter.unload()
        pytest.skip("this family cannot be parked")
    assert not adapter.held()
    adapter.restore()
    for one, other in zip(before, outputs(answers(adapter, case, case.items()[:2])), strict=True):
        assert agree(case.found(one), case.found(other), 0.0) is None
    assert adapter.held() == held
    adapter.park()
    adapter.unload()
    assert not adapter.held()
    adapter.load()
    outputs(answers(adapter, case, case.items()[:2]))
    adapter.unload()


def test_a_sequence_that_leaves_midway_frees_its_place(adapter: Adapter, case: Case) -> None:
    if not isinstance(adapter, StepAdapter):
        pytest.skip("this family does not work step by step")
    first, second = case.items()[:2]
    alone = outputs(answers(adapter, case, [second]))[0]
    options = parse_options(adapter.spec, case.verb, adapter.spec.run, case.options)
    joined = [adapter.join(entry) for entry in batch(case.verb, [first, second], [options] * 2).entries]
    cancelled, kept = [sequence for sequence in joined if isinstance(sequence, TokenSequence)]
    outcome = adapter.step([Part(cancelled, cancelled.unread), Part(kept, kept.unread)])[1]
    adapter.leave(cancelled)
    while outcome is None:
        outcome = adapter.step([Part(kept, kept.unread)])[0]
    adapter.leave(kept)
    assert isinstance(outcome, Output)
    same(case, outcome, alone)


def test_threads_get_what_a_serial_run_gives(adapter: Adapter, case: Case) -> None:
    if not adapter.reentrant:
        pytest.skip("this family runs one batch at a time")
    items = list(case.items())
    plans = [items[i % 3 :: i % 4 + 1] or items for i in range(12)]
    serial = [outputs(answers(adapter, case, plan)) for plan in plans]
    threaded: list[list[Outcome]] = [[] for _ in plans]
    gate = threading.Barrier(len(plans))

    def work(index: int) -> None:
        gate.wait()
        threaded[index] = answers(adapter, case, plans[index])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for expected, got in zip(serial, threaded, strict=True):
        for one, other in zip(expected, outputs(got), strict=True):
            same(case, one, other)
