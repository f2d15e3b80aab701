"""From a message to the engine's work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.errors import InvalidOption, UnknownModel
from catalog.loader import Catalog
from tasks.child.intake import to_work
from tasks.inputs import read_inputs
from tasks.messages import Submission

MakeSubmission = Callable[..., Submission]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load([])


def test_items_refused_at_the_door_stay_out_of_the_work(catalog: Catalog, make_submission: MakeSubmission) -> None:
    job = make_submission(items=[{"text": "a"}, {"text": ""}, {"text": "c"}], faults={1: {"code": "empty_text"}})
    work = to_work(job, read_inputs(job.inputs), catalog, arrived=50.0, wall=1_000.0)
    assert [item.index for item in work.items] == [0, 2]
    assert [item.payload["text"] for item in work.items] == ["a", "c"]


def test_a_deadline_moves_to_the_engines_clock(catalog: Catalog, make_submission: MakeSubmission) -> None:
    job = make_submission(deadline=1_012.5)
    work = to_work(job, read_inputs(job.inputs), catalog, arrived=50.0, wall=1_010.0)
    assert work.deadline == pytest.approx(52.5)


def test_a_second_attempt_runs_alone(catalog: Catalog, make_submission: MakeSubmission) -> None:
    items = read_inputs(make_submission().inputs)
    assert not to_work(make_submission(attempt=1), items, catalog, arrived=0.0, wall=0.0).alone
    assert to_work(make_submission(attempt=2), items, catalog, arrived=0.0, wall=0.0).alone


def test_a_model_that_this_worker_does_not_know_is_named(catalog: Catalog, make_submission: MakeSubmission) -> None:
    job = make_submission(model="roost/fakes")
    with pytest.raises(UnknownModel, match="roost/fake"):
        to_work(job, read_inputs(job.inputs), catalog, arrived=0.0, wall=0.0)


def test_an_option_that_this_worker_does_not_know_is_named(catalog: Catalog, make_submission: MakeSubmission) -> None:
    job = make_submission(options={"normalise": True})
    with pytest.raises(InvalidOption, match="normalize"):
        to_work(job, read_inputs(job.inputs), catalog, arrived=0.0, wall=0.0)
