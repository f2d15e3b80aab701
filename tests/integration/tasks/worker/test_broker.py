"""A broker that goes and comes back: nothing is lost, nothing stops, the child works on meanwhile."""

from __future__ import annotations

import threading

import pytest

from deploy.embedded.valkey import ValkeyServer
from tasks.errors import BrokerUnavailable
from tasks.messages import Submission
from tasks.worker.holding import FRESH
from tests.integration.tasks.worker.stage import Stage


@pytest.fixture
def broker_url(own_valkey: ValkeyServer) -> str:
    return own_valkey.url()


def test_three_quick_restarts_under_load_lose_nothing(own_valkey: ValkeyServer, stage: Stage) -> None:
    accepted, enough = list[Submission](), threading.Event()

    def load() -> None:
        while not enough.wait(0.02):
            some = [stage.job(seconds=0.001) for _ in range(5)]
            try:
                stage.publish(*some)
            except BrokerUnavailable:
                continue
            accepted.extend(some)

    stage.start()
    sender = threading.Thread(target=load)
    sender.start()
    try:
        for _ in range(3):
            wanted = len(accepted) + 50
            stage.until(lambda wanted=wanted: len(accepted) > wanted)  # type: ignore[misc]
            own_valkey.stop()
            own_valkey.start()
        wanted = len(accepted) + 50
        stage.until(lambda: len(accepted) > wanted)
    finally:
        enough.set()
        sender.join()
    accepted_ids = {str(job.id) for job in accepted}
    stage.until(lambda: accepted_ids <= set(stage.books.ended()))
    last = [stage.job() for _ in range(20)]
    stage.publish(*last)
    stage.until(lambda: {str(job.id) for job in last} <= set(stage.books.ended()), 5.0)
    stage.until(lambda: stage.books.left() == 0)


def test_jobs_in_hand_are_not_sent_to_the_child_again_after_a_reconnect(own_valkey: ValkeyServer, stage: Stage) -> None:
    running, waiting = stage.job(seconds=2), stage.job()
    stage.start(held_lease_s=2)
    stage.publish(running)
    stage.until(stage.books.runs)
    stage.publish(waiting)
    stage.until(lambda: stage.books.told(waiting))
    own_valkey.stop()
    own_valkey.start()
    stage.until_all_ended(2)
    assert stage.books.told(running) == stage.books.told(waiting) == [FRESH]


def test_what_ends_while_the_broker_is_away_is_acked_when_it_is_back(own_valkey: ValkeyServer, stage: Stage) -> None:
    running = stage.job(seconds=0.3)
    worker = stage.start(held_lease_s=60)
    stage.publish(running)
    stage.until(stage.books.runs)
    own_valkey.stop()
    stage.until(lambda: "no broker" in worker.said)
    own_valkey.start()
    stage.until_all_ended(1)
    assert stage.books.told(running) == [FRESH]


def test_cut_connections_are_made_anew(stage: Stage) -> None:
    worker = stage.start()
    stage.publish(stage.job())
    stage.until(lambda: len(stage.books.ended()) == 1)
    stage.books.client.client_kill_filter(_type="normal", skipme=True)
    stage.books.client.client_kill_filter(_type="pubsub")
    stage.until(lambda: "Connection to broker lost" in worker.said)
    stage.publish(*(stage.job() for _ in range(20)))
    stage.until_all_ended(21, 5.0)


def test_a_worker_stops_in_time_while_the_broker_is_away(own_valkey: ValkeyServer, stage: Stage) -> None:
    worker = stage.start()
    stage.publish(stage.job())
    stage.until(lambda: stage.books.left() == 0 and stage.books.ended())
    own_valkey.stop()
    stage.until(lambda: "no broker" in worker.said)
    assert worker.stop(5.0) == 0
