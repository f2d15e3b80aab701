"""What is accepted ends, once, whatever dies. Real processes, killed with SIGKILL; HTTP is all that callers see."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]

SLOW = {
    "family": "fake",
    "tasks": {"encode": {"dims": 8}},
    "parameters": 0,
    "max_length": 512,
    "cost": {"base": 0.0, "per_token": 5.0},
    "load": {"dims": 8, "seconds_per_cost": 0.001},
}


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models={"slow": SLOW}, max_attempts=5)


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


@pytest.fixture
def load(someone: Any) -> list[str]:
    """Sixty slow jobs, accepted while the fault happens: the test adds its fault, `settled` checks them all."""
    return [someone.submit([f"text {n} " + "word " * (n % 7)], "slow") for n in range(60)]


def settled(someone: Any, ids: list[str]) -> None:
    """Every job has ended once, well, and stays as it ended."""
    ended = someone.ends(ids, patience_s=90)
    assert {id_: job["status"] for id_, job in ended.items()} == dict.fromkeys(ids, "succeeded")
    for id_ in ids:
        assert someone.vectors(id_).shape == (1, 8)
    again = {id_: someone.job(id_) for id_ in ids}
    assert {id_: job["finished_at"] for id_, job in again.items()} == {
        id_: job["finished_at"] for id_, job in ended.items()
    }


def test_a_worker_killed_in_mid_batch(stack: Any, someone: Any, load: list[str]) -> None:
    someone.end(load[0])
    stack.worker.kill()
    stack.worker.start()
    settled(someone, load)


def test_an_engine_child_killed_in_mid_batch(stack: Any, someone: Any, load: list[str]) -> None:
    someone.end(load[0])
    stack.worker.kill_child()
    settled(someone, load)
    assert stack.worker.alive


def test_an_api_killed_between_commit_and_dispatch(stack: Any, someone: Any) -> None:
    valkey = stack.part("valkey")
    valkey.signal(signal.SIGSTOP)
    try:
        ids = [someone.submit(["told after the commit"], "slow") for _ in range(5)]
        stack.part("api").kill()
    finally:
        valkey.signal(signal.SIGCONT)
    stack.part("api").start()
    settled(someone, ids)


def test_valkey_killed_with_its_data_kept(stack: Any, someone: Any, load: list[str]) -> None:
    stack.part("valkey").kill()
    stack.part("valkey").start()
    settled(someone, load)


def test_valkey_killed_with_all_its_data_lost(stack: Any, someone: Any, load: list[str]) -> None:
    stack.wipe_valkey()
    settled(someone, load)


def test_large_inputs_are_no_burden_to_a_broker_that_is_nearly_full(stack: Any, someone: Any) -> None:
    with redis.Redis.from_url(stack.redis_url) as broker:
        broker.config_set("maxmemory", int(broker.info("memory")["used_memory"]) + 4 * 2**20)
        try:
            ids = [someone.submit([f"{n} " + "x" * 200_000]) for n in range(60)]
            ended = someone.ends(ids)
        finally:
            broker.config_set("maxmemory", 0)
    assert {job["status"] for job in ended.values()} == {"succeeded"}


def test_valkey_restarted_three_times_in_a_row(stack: Any, someone: Any, load: list[str]) -> None:
    for _ in range(3):
        stack.part("valkey").kill()
        stack.part("valkey").start()
    ids = [someone.submit(["after the restarts"], "slow") for _ in range(20)]
    settled(someone, load + ids)


def test_postgres_restarted_under_load(stack: Any, someone: Any, load: list[str]) -> None:
    stack.part("postgres").restart()
    settled(someone, load)


def test_postgres_killed_under_load(stack: Any, someone: Any, load: list[str]) -> None:
    stack.part("postgres").kill()
    stack.part("postgres").start()
    settled(someone, load)


def test_a_result_computed_while_postgres_is_away_is_written_when_it_is_back(stack: Any, someone: Any) -> None:
    id_ = someone.submit(["word " * 200], "slow")
    with someone.client.stream("GET", f"/v1/jobs/{id_}/events") as events:
        next(line for line in events.iter_lines() if line == "event: running")
    stack.part("postgres").kill()
    # A look waits for the database for seconds, and the job takes one.
    answer = someone.client.get(f"/v1/jobs/{id_}")
    stack.part("postgres").start()
    assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
    settled(someone, [id_])
    assert someone.job(id_)["attempts"] == 1


def test_a_waiting_call_is_answered_although_the_broker_lost_everything_meanwhile(stack: Any, someone: Any) -> None:
    answers: list[Any] = []
    call = threading.Thread(target=lambda: answers.append(someone.post(["word " * 300], "slow", wait=60)))
    call.start()
    stack.wipe_valkey()
    call.join(90)
    [answer] = answers
    assert answer.status_code in {200, 202}, answer.text
    assert someone.end(answer.json()["id"])["status"] == "succeeded"


def test_a_long_poll_hears_of_a_job_that_outlived_its_worker(stack: Any, someone: Any) -> None:
    id_ = someone.submit(["word " * 300], "slow")
    heard: list[Any] = []
    poll = threading.Thread(target=lambda: heard.append(someone.client.get(f"/v1/jobs/{id_}", params={"wait": 60})))
    poll.start()
    stack.worker.kill()
    stack.worker.start()
    poll.join(90)
    assert heard[0].json()["status"] == "succeeded"


def test_a_worker_asked_to_end_hands_back_what_it_has_not_started(stack: Any, someone: Any, load: list[str]) -> None:
    someone.end(load[0])
    assert stack.worker.stop(), "the worker had to be killed"
    stack.worker.start()
    settled(someone, load)
    assert {someone.job(id_)["attempts"] for id_ in load} == {1}


def test_beat_and_the_chores_worker_may_die_as_well(stack: Any, someone: Any, load: list[str]) -> None:
    for name in ("beat", "chores"):
        stack.part(name).kill()
        stack.part(name).start()
    settled(someone, load)
