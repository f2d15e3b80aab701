"""What a worker counts of its batches and of the jobs that ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgpack
import pytest

from catalog.terms import Lane, Verb
from engine.types import Batch, Entry, Item, Work
from tasks.child.tally import SECONDS, STAGES, Counts, Tally
from tasks.jobs import State
from tasks.messages import Completion, Submission

MakeSubmission = Callable[..., Submission]


def ended(job: Submission, **ms: float) -> Completion:
    timings = {f"{stage}_ms": 0.0 for stage in STAGES} | {f"{stage}_ms": value for stage, value in ms.items()}
    return Completion(job, "succeeded", b"", 0, None, 1.0, 0.0, 0.0, timings)


def test_a_value_on_a_bound_is_within_it() -> None:
    counts = Counts((1, 2, 4))
    for value in (1, 2, 3, 4, 5):
        counts.add(value)
    assert (counts.counts, counts.total) == ([1, 1, 2, 1], 15)


def test_a_job_counts_once_in_each_stage_and_by_how_it_ended(make_submission: MakeSubmission) -> None:
    tally = Tally()
    tally.ended(ended(make_submission(), load=1_000.0, total=1_020.0), State.SUCCEEDED, commit_s=0.004)
    told = tally.told()
    stages = {row[2]: row for row in told["stages"]["of"]}
    assert set(stages) == set(STAGES)
    assert all(row[:2] == ["encode", "interactive"] and sum(row[3]) == 1 for row in stages.values())
    assert stages["load"][3][SECONDS.index(1.0)] == 1
    assert told["ended"] == [["encode", "interactive", "succeeded", 1]]


def test_the_writing_of_the_result_counts_into_the_commit_and_the_whole(make_submission: MakeSubmission) -> None:
    tally = Tally()
    tally.ended(ended(make_submission(), commit=1.0, total=20.0), State.FAILED, commit_s=0.004)
    sums = {row[2]: row[4] for row in tally.told()["stages"]["of"]}
    assert (sums["commit"], sums["total"]) == (pytest.approx(0.005), pytest.approx(0.024))


def test_lanes_are_counted_apart(make_submission: MakeSubmission) -> None:
    tally = Tally()
    for lane in (Lane.BULK, Lane.INTERACTIVE):
        tally.ended(ended(replace(make_submission(), lane=lane)), State.SUCCEEDED, commit_s=0.0)
    assert {tuple(row[:2]) for row in tally.told()["stages"]["of"]} == {("encode", "bulk"), ("encode", "interactive")}


def test_a_batch_counts_its_items_and_its_tokens_with_padding_where_there_is_any() -> None:
    items = tuple(Item(index, {}, length, 1.0) for index, length in enumerate((10, 90, 40)))
    work = Work("w", "m", Verb.ENCODE, items, None, Lane.BULK, 5, 0.0)
    tally = Tally()
    batch = Batch(1, "m", Verb.ENCODE, tuple(Entry(work, item) for item in items))
    tally.batch(batch)
    told = tally.told()
    [[verb, counts, total]] = told["batch_items"]["of"]
    assert (verb, counts[told["batch_items"]["le"].index(4)], total) == ("encode", 1, 3)
    assert told["batch_tokens"]["of"][0][2] == 3 * 90
    tally.batch(replace(batch, padded=False))
    assert tally.told()["batch_tokens"]["of"][0][2] == 3 * 90 + 140


def test_what_is_told_of_every_verb_and_lane_is_small(make_submission: MakeSubmission) -> None:
    tally = Tally()
    for verb in Verb:
        for lane in Lane:
            tally.ended(ended(replace(make_submission(), verb=verb, lane=lane)), State.SUCCEEDED, commit_s=0.0)
    assert len(msgpack.packb(tally.told())) < 8 * 1024
