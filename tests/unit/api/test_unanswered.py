"""A call that is made again finds the job of the first one."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from api.unanswered import Unanswered
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
    waiting.put(first)
    assert waiting.take(submission()) is first
    assert waiting.take(submission()) is None


@pytest.mark.parametrize(
    "change",
    [{"inputs": b"other"}, {"model": "org/other"}, {"options": {"normalize": False}}, {"caller": "someone"}],
    ids=lambda change: next(iter(change)),
)
def test_another_call_does_not(change: dict[str, object]) -> None:
    waiting = Unanswered()
    waiting.put(submission())
    other: Submission = replace(submission(), **change)  # type: ignore[arg-type]
    assert waiting.take(other) is None


def test_the_oldest_is_forgotten_when_there_are_too_many() -> None:
    waiting = Unanswered(most=2)
    jobs = [replace(submission(), inputs=str(place).encode()) for place in range(3)]
    for job in jobs:
        waiting.put(job)
    assert [waiting.take(job) for job in jobs] == [None, *jobs[1:]]
