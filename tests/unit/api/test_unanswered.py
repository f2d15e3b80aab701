"""A call that is made again finds the job of the first one."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from api.unanswered import KEPT_S, Unanswered, mark_of
from catalog.terms import Lane, Verb
from tasks.messages import Submission


def submission() -> Submission:
    return Submission(
        id=UUID(int=1),
        caller="default",
        verb=Verb.ENCODE,
        model="org/model",
        revision=None,
        lane=Lane.INTERACTIVE,
        bucket="xs",
        priority=5,
        options={"normalize": True},
        inputs=b"a text",
        lengths=[2],
        costs=[1.0],
        faults={},
        created=1.0,
        deadline=None,
        retention_s=60,
    )


def test_the_same_call_finds_its_job_once() -> None:
    waiting, first = Unanswered(), submission()
    waiting.put(mark_of(first), first, 1.0)
    found = waiting.take(mark_of(submission()), 2.0)
    assert found is not None
    assert found.id == first.id
    assert found.inputs == b"", "what was sent stays in memory for a caller who may never come"
    assert waiting.take(mark_of(submission()), 2.0) is None
    assert not waiting


@pytest.mark.parametrize(
    "change",
    [{"inputs": b"other"}, {"model": "org/other"}, {"options": {"normalize": False}}, {"caller": "someone"}],
    ids=lambda change: next(iter(change)),
)
def test_another_call_does_not(change: dict[str, object]) -> None:
    other: Submission = replace(submission(), **change)  # type: ignore[arg-type]
    assert mark_of(other) != mark_of(submission())


def test_a_call_that_comes_too_late_is_a_new_one() -> None:
    waiting, first = Unanswered(), submission()
    waiting.put(mark_of(first), first, 1.0)
    assert waiting.take(mark_of(first), 1.1 + KEPT_S) is None


def test_the_oldest_is_forgotten_when_there_are_too_many() -> None:
    waiting = Unanswered(most=2)
    for place in range(3):
        waiting.put(bytes([place]), submission(), 1.0)
    assert [waiting.take(bytes([place]), 1.0) is None for place in range(3)] == [True, False, False]
