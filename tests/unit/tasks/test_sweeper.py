"""Which queued jobs to send again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from tasks.store.sweep import Waiting
from tasks.sweeper import LOOK_AGAIN, Plan, settle

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE = timedelta(minutes=2)


def waiting(number: int, age: timedelta) -> Waiting:
    return Waiting(UUID(int=number), NOW - age)


OLD, YOUNG = waiting(1, timedelta(minutes=10)), waiting(2, timedelta(minutes=1))


def test_what_the_broker_does_not_hold_is_sent_however_young() -> None:
    plan = settle([OLD, YOUNG], {OLD.id}, NOW, due=False, patience=PATIENCE)

    assert plan == Plan([YOUNG.id], {YOUNG.id: NOW + LOOK_AGAIN})


def test_a_due_job_is_looked_at_again_even_if_it_has_its_message() -> None:
    plan = settle([OLD, YOUNG], {OLD.id}, NOW, due=True, patience=PATIENCE)

    assert plan == Plan([YOUNG.id], {OLD.id: NOW + LOOK_AGAIN, YOUNG.id: NOW + LOOK_AGAIN})


def test_a_blind_broker_is_trusted_for_as_long_as_patience_lasts() -> None:
    plan = settle([OLD, YOUNG], None, NOW, due=False, patience=PATIENCE)

    assert plan.send == [OLD.id]


def test_a_blind_broker_is_asked_less_and_less_often() -> None:
    plan = settle([OLD], None, NOW, due=False, patience=PATIENCE)

    assert plan.look == {OLD.id: NOW + timedelta(minutes=10)}


def test_a_due_job_goes_to_a_blind_broker_at_once() -> None:
    plan = settle([YOUNG], None, NOW, due=True, patience=PATIENCE)

    assert plan == Plan([YOUNG.id], {YOUNG.id: NOW + PATIENCE})
