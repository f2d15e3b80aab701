"""What callers do to jobs: repeat, cancel, bound, retry, follow. Two API processes, one worker; HTTP only."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]


def fake(cost_s: float = 0.0, **load: Any) -> dict[str, Any]:
    """A fake model of which one word costs `cost_s` seconds on the device."""
    return {
        "family": "fake",
        "tasks": {"encode": {"dims": 8}},
        "parameters": 0,
        "max_length": 8192,
        "cost": {"base": 0.0, "per_token": cost_s * 1000},
        "load": {"dims": 8, "seconds_per_cost": 0.001, **load},
    }


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    running = start_stack(
        lanes=1,
        batch_items=1,
        batch_limit_s=4.0,
        load_limit_s=15.0,
        pool_size=5,
        # Nothing here ends with a lease: a child may take longer than three seconds to start on a busy machine.
        job_lease_s=30.0,
        models={
            "slow": fake(0.1),
            "endless": fake(faults=[{"kind": "hang", "when_text": "POISON"}]),
            "deadly": fake(faults=[{"kind": "crash", "when_text": "POISON"}]),
            "once-sick": fake(faults=[{"kind": "device_lost", "when_text": "POISON"}]),
            "unloadable": fake(load_seconds=10_000),
            "greedy": fake(faults=[{"kind": "memory_error", "when_text": "POISON"}]),
        },
    )
    running.second = running.add_api()
    return running


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


@pytest.fixture
def second(stack: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.second, timeout=60) as client:
        yield client


def test_twenty_posts_of_one_key_on_two_processes_are_one_job(someone: Any, second: httpx.Client) -> None:
    body = {"verb": "encode", "model": "roost/fake", "items": ["once"]}
    headers = {"Idempotency-Key": "twenty-at-once"}

    def post(n: int) -> httpx.Response:
        client = someone.client if n % 2 else second
        return client.post("/v1/jobs", json=body, headers=headers)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(post, range(20)))
    assert {answer.status_code for answer in answers} <= {200, 202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    other = second.post("/v1/jobs", json={**body, "items": ["another"]}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")


def test_any_process_answers_for_any_job_as_often_as_asked(someone: Any, second: httpx.Client) -> None:
    ids = [someone.submit([f"text {n}"]) for n in range(20)]
    answers = [second.get(f"/v1/jobs/{id_}", params={"wait": 20}) for id_ in ids]
    assert {answer.json()["status"] for answer in answers} == {"succeeded"}
    first = [second.get(f"/v1/jobs/{id_}/result").content for id_ in ids]
    assert first == [someone.client.get(f"/v1/jobs/{id_}/result").content for id_ in ids]


def test_a_queued_job_that_is_cancelled_never_runs(someone: Any) -> None:
    running = someone.submit(["word " * 20], "slow")
    waiting = someone.submit(["word " * 20], "slow")
    cancelled = someone.client.post(f"/v1/jobs/{waiting}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert someone.end(running)["status"] == "succeeded"
    assert someone.post(["after it"], wait=20).json()["status"] == "succeeded"
    job = someone.job(waiting)
    assert (job["status"], job["started_at"]) == ("cancelled", None)


def test_a_running_job_that_is_cancelled_is_not_committed_afterwards(someone: Any) -> None:
    id_ = someone.submit(["word " * 15], "slow")
    with someone.client.stream("GET", f"/v1/jobs/{id_}/events") as events:
        for line in events.iter_lines():
            if line == "event: running":
                break
    assert someone.client.post(f"/v1/jobs/{id_}/cancel").json()["status"] == "cancelled"
    assert someone.post(["after it"], "slow", wait=20).json()["status"] == "succeeded"
    assert someone.job(id_)["status"] == "cancelled"
    assert someone.client.get(f"/v1/jobs/{id_}/result").status_code == 409


def test_a_job_cancelled_while_no_worker_lives_never_runs(stack: Any, someone: Any) -> None:
    stack.worker.stop()
    ids = [someone.submit([f"text {n}"], "slow") for n in range(3)]
    someone.client.post(f"/v1/jobs/{ids[2]}/cancel")
    stack.worker.start()
    assert [someone.end(id_)["status"] for id_ in ids] == ["succeeded", "succeeded", "cancelled"]
    assert someone.job(ids[2])["started_at"] is None


def test_a_finished_job_cannot_be_cancelled(someone: Any) -> None:
    id_ = someone.post(["done"], wait=20).json()["id"]
    answer = someone.client.post(f"/v1/jobs/{id_}/cancel")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "already_finished")


def test_a_job_past_its_deadline_expires_and_may_be_retried(someone: Any) -> None:
    blocking = someone.submit(["word " * 14], "slow")
    late = someone.submit(["late"], "slow", deadline_s=0.3)
    assert someone.end(late)["status"] == "expired"
    assert someone.end(late)["error"]["code"] == "deadline_passed"
    someone.end(blocking)
    again = someone.client.post(f"/v1/jobs/{late}/retry")
    assert again.status_code == 202, again.text
    assert someone.end(late)["status"] == "succeeded"


def test_a_wait_that_ends_early_gives_202_and_the_work_goes_on(someone: Any) -> None:
    answer = someone.post(["word " * 12], "slow", wait=0.2)
    assert answer.status_code == 202
    assert "Retry-After" in answer.headers
    assert answer.headers["Location"] == f"/v1/jobs/{answer.json()['id']}"
    assert someone.end(answer.json()["id"])["status"] == "succeeded"


def test_events_tell_each_state_once_and_resume_where_they_were_left(someone: Any) -> None:
    id_ = someone.submit(["word " * 12], "slow")
    seen = list(events_of(someone, id_))
    assert [name for name, *_ in seen][-1] == "succeeded"
    assert "running" in [name for name, *_ in seen]
    assert all(a < b for a, b in pairwise(number for _, number, _ in seen))
    assert json.loads(seen[-1][2])["id"] == id_
    _, number, _ = seen[-2]
    assert [name for name, *_ in events_of(someone, id_, last=number)] == ["succeeded"]
    assert list(events_of(someone, id_, last=seen[-1][1])) == []


def events_of(someone: Any, id_: str, last: int | None = None) -> Iterator[tuple[str, int, str]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with someone.client.stream("GET", f"/v1/jobs/{id_}/events", headers=headers) as events:
        fields: dict[str, str] = {}
        for line in events.iter_lines():
            name, _, value = line.partition(": ")
            if name in {"event", "id", "data"}:
                fields[name] = value
            elif not line and "event" in fields:
                yield fields["event"], int(fields["id"]), fields["data"]
                fields = {}


def test_a_job_that_never_ends_is_stopped_and_its_neighbours_finish(stack: Any, someone: Any) -> None:
    poison = someone.submit(["POISON"], "endless")
    good = [someone.submit([f"text {n}"], "endless") for n in range(5)]
    ended = someone.ends(good)
    assert {job["status"] for job in ended.values()} == {"succeeded"}
    job = someone.end(poison)
    assert (job["status"], job["error"]["code"]) == ("failed", "time_limit")
    assert stack.worker.alive


def test_a_job_that_kills_its_worker_each_time_is_given_up_and_good_jobs_finish(stack: Any, someone: Any) -> None:
    poison = someone.submit(["POISON"], "deadly")
    good = [someone.submit([f"text {n}"], "deadly") for n in range(20)]
    assert {job["status"] for job in someone.ends(good).values()} == {"succeeded"}
    job = someone.end(poison)
    assert (job["status"], job["error"]["code"], job["attempts"]) == ("failed", "worker_lost", 3)
    assert someone.post(["and the worker serves"], wait=30).json()["status"] == "succeeded"


def test_a_device_that_cannot_compute_any_more_is_restarted_and_only_the_culprit_suffers(someone: Any) -> None:
    with watching(someone) as seen:
        poison = someone.submit(["POISON"], "once-sick")
        good = [someone.submit([f"text {n}"], "once-sick") for n in range(10)]
        assert {job["status"] for job in someone.ends(good).values()} == {"succeeded"}
        assert someone.end(poison)["status"] == "failed"
        # With the next child's first beat.
        end = time.monotonic() + 30.0
        while someone.client.get("/readyz").text != "ok":
            assert time.monotonic() < end, "still not ready"
    assert seen.ready >= {200, 503}
    assert seen.lost >= {"0", "1"}


@dataclass
class Seen:
    """The states of /readyz and the values of the gauge of lost workers that were seen."""

    ready: set[int] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)


@contextmanager
def watching(someone: Any) -> Iterator[Seen]:
    """Look at readiness and the gauge again and again while the block runs."""
    seen, over = Seen(), threading.Event()

    def watch() -> None:
        with httpx.Client(base_url=someone.client.base_url, timeout=60) as client:
            while not over.is_set():
                seen.ready.add(client.get("/readyz").status_code)
                page = client.get("/metrics").text
                seen.lost.update(re.findall(r"^roost_worker_lost\{[^}]*\} (\d)", page, re.MULTILINE))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def test_a_load_that_never_ends_fails_its_jobs_once_and_the_others_go_on(stack: Any, someone: Any) -> None:
    hung = [someone.submit([f"text {n}"], "unloadable") for n in range(3)]
    assert someone.post(["beside it"], wait=30).json()["status"] == "succeeded"
    ended = someone.ends(hung)
    assert {job["error"]["code"] for job in ended.values()} == {"model_load_failed"}
    assert all("15 s" in job["error"]["message"] for job in ended.values())
    child = stack.worker.children()
    again = someone.post(["once more"], "unloadable", wait=30).json()
    assert again["error"]["code"] == "model_load_failed"
    assert stack.worker.children() == child


def test_a_memory_error_fails_its_job_and_nothing_else(someone: Any) -> None:
    poison = someone.submit(["POISON"], "greedy")
    good = [someone.submit([f"text {n}"], "greedy") for n in range(20)]
    assert {job["status"] for job in someone.ends(good).values()} == {"succeeded"}
    assert someone.end(poison)["error"]["code"] == "out_of_memory"


def test_a_hundred_waiting_calls_leave_the_database_to_others(someone: Any) -> None:
    with ThreadPoolExecutor(100) as pool:
        waits = [pool.submit(someone.post, ["word"], "slow", wait=20) for _ in range(100)]
        for _ in range(5):
            answer = httpx.get(f"{someone.client.base_url}/v1/jobs", params={"limit": 5}, timeout=5)
            assert answer.status_code == 200
            assert answer.elapsed.total_seconds() < 1.5
        assert {wait.result().status_code for wait in waits} <= {200, 202}


def test_callers_that_give_up_leave_no_trace_for_patient_ones(someone: Any) -> None:
    def give_up(n: int) -> None:
        with pytest.raises(httpx.TimeoutException):
            httpx.post(
                f"{someone.client.base_url}/v1/jobs",
                json={"verb": "encode", "model": "slow", "items": ["word " * 8]},
                headers={"Prefer": "wait=30"},
                timeout=0.2,
            )

    blocking = someone.submit(["word " * 10], "slow")
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(give_up, range(10)))
    answer = someone.post(["patient"], wait=60)
    assert answer.json()["status"] == "succeeded"
    someone.end(blocking)


def test_short_jobs_do_not_wait_for_a_long_one_when_another_worker_is_idle(stack: Any, someone: Any) -> None:
    stack.add_worker()
    long = someone.submit(["word " * 18], "slow")
    with someone.client.stream("GET", f"/v1/jobs/{long}/events") as events:
        next(line for line in events.iter_lines() if line == "event: running")
    short = [someone.submit(["w"], "slow") for _ in range(5)]
    ended, other = someone.ends(short).values(), someone.end(long)
    # On a busy machine the long one may be over before the last short ones come; those may go to either worker.
    beside = [job for job in ended if job["created_at"] < other["finished_at"]]
    assert beside
    assert not [job for job in beside if job["worker"] == other["worker"] and job["finished_at"] > other["finished_at"]]


def test_nothing_is_listed_twice_over_pages(someone: Any) -> None:
    ids = {someone.submit([f"text {n}"], tags=["paged"]) for n in range(25)}
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = someone.client.get("/v1/jobs", params={"tag": "paged", "limit": 10, **cursor}).json()
        found += [job["id"] for job in page["data"]]
        if not page["has_more"]:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(found) == 25
    assert set(found) == ids


def test_the_door_says_what_is_wrong(someone: Any) -> None:
    cases: list[tuple[Any, int, str]] = [
        ({"verb": "encode", "model": "roost/fakes", "items": ["x"]}, 404, "model_not_found"),
        ({"verb": "encode", "model": "roost/fake", "items": []}, 422, "invalid_request"),
        ({"verb": "encode", "model": "roost/fake", "items": [["x"]]}, 422, "invalid_request"),
        (
            {"verb": "encode", "model": "roost/fake", "items": ["x"], "options": {"normalise": True}},
            422,
            "invalid_option",
        ),
        ({"verb": "score", "model": "roost/fake", "items": ["x"]}, 422, "invalid_request"),
        ({"verb": "generate", "model": "roost/fake", "items": ["x"]}, 422, "unsupported_verb"),
        ({"verb": "encode", "model": "roost/fake", "items": ["x"], "tags": ["a\0b"]}, 422, "invalid_request"),
    ]
    for body, status, code in cases:
        answer = someone.client.post("/v1/jobs", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    lone = someone.client.post(
        "/v1/jobs",
        content=b'{"verb":"encode","model":"roost/fake","items":["\\ud83d"]}',
        headers={"Content-Type": "application/json"},
    )
    assert lone.status_code == 422
    assert lone.json()["error"]["param"] == "items[0]"


def test_threads_of_one_caller_each_get_their_own_answer(someone: Any) -> None:
    barrier = threading.Barrier(16)

    def ask(n: int) -> tuple[int, int]:
        barrier.wait()
        body = someone.post(["word " * n], wait=30).json()
        return n, body["result"]["items"][0]["tokens"]

    with ThreadPoolExecutor(16) as pool:
        assert all(tokens == n + 2 for n, tokens in pool.map(ask, range(1, 17)))
