"""The receiver of examples/webhooks takes what is signed, acts on it once, and refuses all else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import pytest

from examples.webhooks.receiver import receiver
from tasks.webhooks import signing

SECRET = signing.new_secret()
BODY = b'{"type":"job.succeeded","timestamp":"2026-05-01T00:00:00Z","data":{"id":"1"}}'


class Acts:
    """What was done; while `fails` nothing is, and while `free` is not set it takes its time."""

    def __init__(self) -> None:
        self.done: list[Mapping[str, Any]] = []
        self.fails = False
        self.begun, self.free = threading.Event(), threading.Event()
        self.free.set()

    def __call__(self, event: Mapping[str, Any]) -> None:
        self.begun.set()
        assert self.free.wait(10)
        if self.fails:
            raise OSError
        self.done.append(event)


@pytest.fixture
def acts() -> Acts:
    return Acts()


@pytest.fixture
def send(acts: Acts) -> Iterator[Callable[..., int]]:
    """Sends a body as a sender does, and gives the status of the answer."""

    def sent(number: int = 1, body: bytes = BODY, key: bytes = SECRET, **more: str) -> int:
        headers = {**signing.headers(UUID(int=number), datetime.now(UTC), BODY, [key]), **more}
        return client.post(f"http://127.0.0.1:{server.server_port}/", content=body, headers=headers).status_code

    with receiver(0, signing.shown_secret(SECRET), acts) as server, httpx.Client(trust_env=False) as client:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield sent
        server.shutdown()
        thread.join()


def test_an_event_is_acted_on_once_however_often_it_comes(send: Callable[..., int], acts: Acts) -> None:
    assert [send(1), send(1), send(2)] == [204] * 3
    assert [event["data"]["id"] for event in acts.done] == ["1", "1"]


def test_what_could_not_be_done_may_come_again(send: Callable[..., int], acts: Acts) -> None:
    acts.fails = True
    assert send() == 500
    acts.fails = False
    assert send() == 204
    assert len(acts.done) == 1


def test_what_comes_again_while_it_is_done_is_not_yet_had(send: Callable[..., int], acts: Acts) -> None:
    acts.free.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send)
        assert acts.begun.wait(10)
        again = send()
        acts.free.set()
    assert (again, first.result(), send()) == (503, 204, 204)
    assert len(acts.done) == 1


def test_what_is_not_signed_is_refused_and_nothing_done(send: Callable[..., int], acts: Acts) -> None:
    assert send(body=BODY + b" ") == 400
    assert send(key=signing.new_secret()) == 400
    assert send(**{"webhook-timestamp": "1"}) == 400
    assert acts.done == []
