"""The engine child against a real database and a real Valkey: what it commits, whom it wakes, what it gives back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import pytest
import redis

from tasks import keys
from tasks.db import Database
from tasks.jobs import Job, State
from tasks.messages import INLINE_BYTES, Submission
from tasks.notices import Change, unpack_changes, unpack_replies
from tasks.results import unpack_rows
from tasks.settings import plain_redis
from tasks.store import change, read

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
Texts = Callable[..., bytes]
StartChild = Callable[..., Any]
Hear = Callable[..., Callable[[], bytes]]


def rows_of(database: Database, job: Submission) -> list[dict[str, Any]]:
    found = database.run(read.result, job.id, job.caller)
    assert found.rows is not None
    return unpack_rows(found.rows)


def test_a_stored_job_is_committed_before_it_is_done(
    start_child: StartChild, database: Database, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    job = stored_job(inputs=texts("a text"))
    child = start_child()
    child.run(job)
    assert child.done(1) == {str(job.id): "succeeded"}
    assert row(job).state is State.SUCCEEDED
    assert rows_of(database, job)[0]["dense"]["dims"] == 384


def test_a_direct_job_gets_its_whole_row_when_it_ends(
    start_child: StartChild, new_job: NewJob, row: Row, texts: Texts
) -> None:
    job = new_job(inputs=texts("a text"), stored=False, tags=["t"])
    child = start_child()
    child.run(job)
    assert child.done(1) == {str(job.id): "succeeded"}
    assert (row(job).state, row(job).tags, row(job).caller) == (State.SUCCEEDED, ("t",), "default")


def test_waiters_are_woken_once_for_a_batch_after_the_commit(
    start_child: StartChild, hear: Hear, new_job: NewJob, texts: Texts
) -> None:
    told = hear(keys.reply("door-7"), keys.CHANGES)
    job = new_job(inputs=texts("a text"), stored=False, reply_to="door-7")
    child = start_child()
    child.run(job)
    child.done(1)
    [reply] = unpack_replies(told())
    [changed] = unpack_changes(told())
    assert (reply.id, reply.state, reply.has_result) == (job.id, "succeeded", True)
    assert (changed.id, changed.state) == (job.id, "succeeded")


def test_inputs_too_large_for_the_message_are_read_from_the_row(
    start_child: StartChild, database: Database, stored_job: NewJob, texts: Texts
) -> None:
    job = stored_job(inputs=texts("long " * INLINE_BYTES))
    child = start_child()
    child.run(job)
    assert child.done(1) == {str(job.id): "succeeded"}
    assert "error" not in rows_of(database, job)[0]


def test_a_job_whose_items_all_failed_at_the_door_fails_without_touching_the_device(
    start_child: StartChild, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    fault = {"code": "empty_text", "message": "m", "retryable": False}
    job = stored_job(inputs=texts(""), faults={0: fault})
    child = start_child()
    child.run(job)
    assert child.done(1) == {str(job.id): "failed"}
    assert row(job).error == fault


def test_nan_fails_its_item_and_not_its_neighbours(
    start_child: StartChild, database: Database, stored_job: NewJob, texts: Texts
) -> None:
    child = start_child({"sick": {"dims": 8, "faults": [{"kind": "nan", "when_text": "POISON"}]}})
    jobs = [stored_job(model="sick", inputs=texts(word)) for word in ("one", "POISON", "three")]
    child.run(*jobs)
    assert child.done(3) == {
        str(jobs[0].id): "succeeded",
        str(jobs[1].id): "failed",
        str(jobs[2].id): "succeeded",
    }
    assert rows_of(database, jobs[1])[0]["error"]["code"] == "not_finite"


def test_a_job_cancelled_in_the_row_is_not_run_when_it_is_delivered_again(
    start_child: StartChild, database: Database, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    job = stored_job(inputs=texts("a text"))
    database.run(change.cancel, job.id, job.caller)
    child = start_child()
    child.run(job, lost=1)
    assert child.done(1) == {str(job.id): "dropped"}
    assert row(job).state is State.CANCELLED


def test_a_cancel_that_comes_while_a_job_runs_keeps_its_result_out(
    start_child: StartChild, database: Database, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    child = start_child({"slow": {"dims": 8, "seconds_per_cost": 0.3}})
    job = stored_job(model="slow", inputs=texts("a text"), costs=[1.0], lengths=[1])
    child.run(job)
    child.next("started")
    database.run(change.cancel, job.id, job.caller)
    child.send("cancel", [str(job.id)])
    assert child.done(1) == {str(job.id): "dropped"}
    child.next("ended")
    assert row(job).state is State.CANCELLED


def test_a_job_that_runs_for_long_is_marked_running_under_a_lease(
    start_child: StartChild, hear: Hear, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    child = start_child({"endless": {"dims": 8, "faults": [{"kind": "hang"}]}})
    job = stored_job(model="endless", inputs=texts("a text"))
    told = hear(keys.CHANGES)
    child.run(job)
    [changed] = unpack_changes(told())
    assert (changed.id, changed.state) == (job.id, "running")
    assert (row(job).state, row(job).worker) == (State.RUNNING, "cpu@test")


def test_followers_are_told_how_many_items_of_a_running_job_are_done(
    start_child: StartChild, hear: Hear, stored_job: NewJob, texts: Texts
) -> None:
    child = start_child({"slow": {"dims": 8, "seconds_per_cost": 0.1}}, batch_items=1, lanes=1)
    job = stored_job(model="slow", inputs=texts(*"abcdefgh"), costs=[1.0] * 8, lengths=[1] * 8)
    told = hear(keys.CHANGES)
    child.run(job)
    child.done(1)
    changes: list[Change] = []
    while not changes or changes[-1].state != "succeeded":
        changes += unpack_changes(told())
    done = [change.items_done for change in changes if change.items_done]
    assert done == sorted(done)
    assert done
    assert done[-1] < 8


def test_a_job_that_kills_its_process_is_given_up_and_its_waiters_are_told(
    start_child: StartChild, hear: Hear, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    models = {"deadly": {"dims": 8, "faults": [{"kind": "crash", "when_text": "POISON"}]}}
    job = stored_job(model="deadly", inputs=texts("POISON"))
    for lost in (0, 2, 2):
        child = start_child(models, max_attempts=3)
        child.run(job, lost=lost)
        assert child.ended()
    told = hear(keys.CHANGES)
    child = start_child(models, max_attempts=3)
    child.run(job, lost=2)
    assert child.done(1) == {str(job.id): "dropped"}
    assert row(job).state is State.FAILED
    assert row(job).error is not None
    assert row(job).error["code"] == "worker_lost"  # type: ignore[index]
    assert [c.state for c in unpack_changes(told())] == ["failed"]


def test_jobs_that_have_not_started_are_handed_back_and_untouched(
    start_child: StartChild, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    child = start_child({"endless": {"dims": 8, "faults": [{"kind": "hang"}]}}, lanes=1)
    running = stored_job(model="endless", inputs=texts("first"))
    child.run(running)
    child.next("started")
    waiting = [stored_job(inputs=texts("later")) for _ in range(3)]
    child.run(*waiting)
    child.send("handback")
    [_, returned] = child.next("returned")
    assert sorted(returned) == sorted(str(job.id) for job in waiting)
    assert {row(job).state for job in waiting} == {State.QUEUED}


def test_after_the_stop_frame_everything_is_written_and_the_process_ends_well(
    start_child: StartChild, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    jobs = [stored_job(inputs=texts(f"text {n}")) for n in range(50)]
    child = start_child()
    child.run(*jobs)
    child.done(50)
    child.send("stop")
    assert child.process.wait(15) == 0
    assert {row(job).state for job in jobs} == {State.SUCCEEDED}


def test_the_child_ends_when_its_parent_is_gone(start_child: StartChild) -> None:
    child = start_child()
    child._line.close()
    assert child.process.wait(15) == 1


def test_a_second_message_for_a_job_in_hand_changes_nothing(
    start_child: StartChild, stored_job: NewJob, row: Row, texts: Texts
) -> None:
    child = start_child({"slow": {"dims": 8, "seconds_per_cost": 0.2}})
    job = stored_job(model="slow", inputs=texts("a text"), costs=[1.0], lengths=[1])
    child.run(job)
    child.next("started")
    child.run(replace(job, checked=False))
    assert child.done(1) == {str(job.id): "succeeded"}
    assert row(job).version == 3 or row(job).version == 2


def test_a_beat_tells_the_models_and_what_is_held(start_child: StartChild, broker_url: str) -> None:
    start_child()
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        body = None
        while body is None:
            body = client.hget(keys.WORKERS, "cpu@test")
    beat = msgpack.unpackb(body)
    assert beat["name"] == "cpu@test"
    assert {"models", "stats", "waiting", "held", "at"} <= set(beat)


def test_a_model_that_will_not_load_is_named_once_the_child_has_started(
    start_child: StartChild, capfd: pytest.CaptureFixture[str]
) -> None:
    start_child({"typo": {"byts": 1}})
    said, until = "", time.monotonic() + 60
    while "a model that will not load: typo: load.byts: " not in said:
        assert time.monotonic() < until, said
        said += capfd.readouterr().err
