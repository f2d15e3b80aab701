"""What a job's end looks like, from the outcomes of its items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import msgpack
import pytest

from catalog.errors import RoostError, UnknownModel
from catalog.terms import Lane, Verb
from engine.errors import LoadFailed, LoadReason, ModelFailed, NotFinite, OutOfMemory
from engine.types import Finished, Item, Outcome, Output, Spent, Work
from tasks.child.completion import at_commit, of_error, of_finished, timings
from tasks.child.hand import Held
from tasks.errors import DeadlinePassed, EmptyText, as_data
from tasks.messages import Completion, Submission
from tasks.results import unpack_rows

CREATED = 1_000.0


def held(items: list[dict[str, Any]], faults: Mapping[int, Mapping[str, Any]] | None = None, attempt: int = 1) -> Held:
    job = Submission(
        id=UUID(int=7),
        caller="anyone",
        verb=Verb.ENCODE,
        model="m",
        revision=None,
        lane=Lane.INTERACTIVE,
        bucket="xs",
        priority=5,
        options={},
        inputs=msgpack.packb(items),
        lengths=[3] * len(items),
        costs=[1.0] * len(items),
        faults=faults or {},
        created=CREATED,
        deadline=None,
        retention_s=60,
        attempt=attempt,
        sent=CREATED + 0.002,
    )
    return Held(job, items, received=CREATED + 0.005, arrived=50.0, started=50.010)


def finished(one: Held, outcomes: list[Outcome], spent: Spent | None = None) -> Completion:
    indexes = [i for i in range(one.job.items) if i not in one.job.faults]
    work = Work(
        id=str(one.job.id),
        model="m",
        verb=Verb.ENCODE,
        items=tuple(Item(index=i, payload=one.items[i], length=3, cost_ms=1.0) for i in indexes),
        options=None,
        lane=Lane.INTERACTIVE,
        priority=5,
        arrived=50.0,
    )
    done = Finished(work, tuple(outcomes), spent or Spent(), device_ms=4.0, finished=50.020)
    return of_finished(one, done, wall=CREATED + 0.030, clock=50.025, worker="w", max_attempts=3)


def vector(value: int) -> Output:
    return Output({"dense": {"dims": 1, "dtype": "float32", "values": bytes([value])}}, tokens=value)


def rows(completion: Completion) -> list[dict[str, Any]]:
    assert completion.result is not None
    return unpack_rows(completion.result)


def test_a_job_whose_items_all_ran_succeeds_with_rows_in_the_callers_order() -> None:
    done = finished(held([{"id": "a", "text": "x"}, {"text": "y"}]), [vector(1), vector(2)])
    assert done.state == "succeeded"
    assert done.error is None
    assert [row.get("id") for row in rows(done)] == ["a", None]
    assert [row["tokens"] for row in rows(done)] == [1, 2]
    assert done.usage == {"items": 2, "tokens": 3}


def test_an_item_refused_at_the_door_keeps_its_slot_between_its_neighbours() -> None:
    fault = as_data(EmptyText())
    done = finished(held([{"text": "x"}, {"id": "b", "text": ""}, {"text": "z"}], {1: fault}), [vector(1), vector(3)])
    assert done.state == "succeeded"
    assert done.items_failed == 1
    assert [row.get("tokens") for row in rows(done)] == [1, None, 3]
    assert rows(done)[1] == {"id": "b", "error": fault}


def test_a_failed_item_leaves_its_neighbours_alone() -> None:
    done = finished(held([{"text": "x"}, {"text": "y"}]), [NotFinite(), vector(2)])
    assert done.state == "succeeded"
    assert rows(done)[0]["error"]["code"] == "not_finite"
    assert rows(done)[1]["tokens"] == 2


def test_a_job_fails_with_its_items_common_error() -> None:
    done = finished(held([{"text": "x"}, {"text": "y"}]), [OutOfMemory(), OutOfMemory()])
    assert done.state == "failed"
    assert done.error is not None
    assert done.error["code"] == "out_of_memory"


def test_a_job_whose_items_failed_for_several_reasons_says_so() -> None:
    done = finished(held([{"text": "x"}, {"text": "y"}]), [OutOfMemory(), ModelFailed()])
    assert done.error is not None
    assert done.error["code"] == "all_items_failed"
    assert [row["error"]["code"] for row in rows(done)] == ["out_of_memory", "model_failed"]


def test_a_job_past_its_deadline_expires() -> None:
    done = of_error(held([{"text": "x"}]), DeadlinePassed(), wall=CREATED + 1, worker="w")
    assert done.state == "expired"


def test_a_job_past_its_deadline_expires_whatever_the_door_refused() -> None:
    one = held([{"text": "x"}, {"text": ""}], {1: as_data(EmptyText())})
    done = of_error(one, DeadlinePassed(), wall=CREATED + 1, worker="w")
    assert done.state == "expired"
    assert done.error is not None
    assert done.error["code"] == "deadline_passed"


def test_an_unknown_model_ends_the_job_with_the_catalogs_own_words() -> None:
    done = of_error(held([{"text": "x"}]), UnknownModel("mm", ["m"]), wall=CREATED + 1, worker="w")
    assert done.state == "failed"
    assert done.error is not None
    assert done.error["code"] == "model_not_found"


class Passing(RoostError):
    """It may work next time."""

    code = "passing"
    retryable = True


def unreachable_hub() -> LoadFailed:
    error = LoadFailed("the hub cannot be reached", LoadReason.NETWORK)
    error.retryable = True
    return error


def test_a_retryable_failure_goes_back_to_its_queue_with_a_delay() -> None:
    done = finished(held([{"text": "x"}]), [unreachable_hub()])
    assert done.state == "queued"
    assert done.run_at == pytest.approx(CREATED + 0.030 + 1.0)
    assert done.result is None


def test_what_the_door_refused_takes_no_try_from_the_rest() -> None:
    done = finished(held([{"text": ""}, {"text": "x"}], {0: as_data(EmptyText())}), [unreachable_hub()])
    assert done.state == "queued"
    assert done.error is not None
    assert done.error["code"] == "model_load_failed"


def test_a_retryable_failure_is_final_after_the_last_attempt() -> None:
    done = finished(held([{"text": "x"}], attempt=3), [unreachable_hub()])
    assert done.state == "failed"
    assert done.run_at is None


def parts(found: Mapping[str, float]) -> float:
    return sum(value for name, value in found.items() if name != "total_ms")


def test_the_timings_add_up_to_the_whole() -> None:
    done = finished(held([{"text": "x"}]), [vector(1)], Spent(load=0.004, wait=0.010, device=0.006))
    assert done.timings["total_ms"] == pytest.approx(30.0)
    assert parts(done.timings) == pytest.approx(30.0)


def test_each_part_is_the_time_between_its_two_moments() -> None:
    """Accepted at 0, sent at 2, in the engine at 5, out of it at 25, told at 30 ms."""
    found = timings(held([]).job, Spent(0.004, 0.010, 0.006), engine_got=1000.005, engine_left=1000.025, wall=1000.030)
    assert found == {
        "admit_ms": pytest.approx(2.0),
        "queue_ms": pytest.approx(3.0),
        "load_ms": pytest.approx(4.0),
        "batch_wait_ms": pytest.approx(10.0),
        "device_ms": pytest.approx(6.0),
        "commit_ms": pytest.approx(5.0),
        "total_ms": pytest.approx(30.0),
    }


def test_parts_add_up_where_the_clocks_of_two_machines_disagree() -> None:
    """The worker's clock is half a second behind the door's."""
    job = replace(held([]).job, sent=CREATED + 0.5)
    found = timings(job, Spent(device=0.006), engine_got=1000.005, engine_left=1000.025, wall=1000.030)
    assert min(found.values()) >= 0.0
    assert parts(found) == pytest.approx(found["total_ms"])


def test_time_before_the_engine_had_the_job_is_queueing_and_no_wait_for_a_batch() -> None:
    """Received at 5 ms, but its inputs were read from the row until 20 ms."""
    one = held([{"text": "x"}])
    one.arrived = 50.015
    done = finished(one, [vector(1)], Spent(device=0.001))
    assert done.timings["queue_ms"] == pytest.approx(18.0)
    assert done.timings["batch_wait_ms"] == pytest.approx(4.0)


def test_waiting_for_the_database_belongs_to_the_commit() -> None:
    done = finished(held([{"text": "x"}]), [vector(1)], Spent(device=0.006))
    late = at_commit(done, CREATED + 2.030)
    assert late.finished == CREATED + 2.030
    assert late.timings["commit_ms"] == pytest.approx(done.timings["commit_ms"] + 2_000.0)
    assert parts(late.timings) == pytest.approx(late.timings["total_ms"]) == pytest.approx(2_030.0)


def test_a_job_delivered_before_spent_the_time_of_its_earlier_tries_in_the_queue() -> None:
    one = held([{"text": "x"}])
    again = Held(replace(one.job, fence=3, sent=CREATED + 7.0), one.items, received=CREATED + 7.1, arrived=50.0)
    done = of_error(again, OutOfMemory(), wall=CREATED + 7.2, worker="w")
    assert done.timings["admit_ms"] == 0.0
    assert done.timings["queue_ms"] == pytest.approx(7_200.0)


def test_a_message_that_was_sent_again_was_in_the_queue_since_its_job_was_accepted() -> None:
    job = replace(held([]).job, sent=0.0)
    found = timings(job, Spent(), engine_got=1005.0, engine_left=1005.0, wall=1005.0)
    assert found["admit_ms"] == 0.0
    assert found["queue_ms"] == pytest.approx(5_000.0)


def test_an_item_whose_answer_json_cannot_hold_fails_alone() -> None:
    one = held([{"text": "a"}, {"text": "b"}, {"text": "c"}])
    outcomes: list[Outcome] = [Output({"score": score}, 3) for score in (0.5, float("nan"), 0.25)]
    done = finished(one, outcomes)
    rows = unpack_rows(done.result or b"")
    assert (done.state, done.items_failed) == ("succeeded", 1)
    assert [row.get("score") for row in rows] == [0.5, None, 0.25]
    assert rows[1]["error"]["code"] == "not_finite"
