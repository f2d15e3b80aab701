"""The API as servers run it: a process of its own, by its factory, with settings from the environment."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import httpx
import pytest
import websockets
from websockets.sync.client import connect

from tasks.store import read
from tasks.store.pages import Filters

if TYPE_CHECKING:
    from tasks.db import Database
    from tasks.settings import Settings

Serve = Callable[..., tuple[subprocess.Popen[bytes], str]]
JOB = {"verb": "encode", "model": "roost/fake", "items": ["a text"]}


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def serve(settings: Settings) -> Iterator[Serve]:
    """Starts the API on a free port; returns once it answers."""
    started: list[subprocess.Popen[bytes]] = []

    def start(processes: int = 1, log: IO[bytes] | None = None) -> tuple[subprocess.Popen[bytes], str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.serve", "127.0.0.1", str(port), str(processes), "info"],
            env={**os.environ, "ROOST_DATABASE_URL": settings.database_url, "ROOST_BROKER_URL": settings.broker_url},
            stderr=log,
        )
        started.append(process)
        url = f"http://127.0.0.1:{port}"
        pause = threading.Event()
        while not _answers(url):
            assert process.poll() is None
            pause.wait(0.02)
        return process, url

    yield start
    for process in started:
        process.terminate()
        process.wait(20)


def test_a_process_that_is_told_to_stop_answers_who_waits_and_keeps_their_jobs(
    serve: Serve, database: Database, messages: Callable[[], int]
) -> None:
    process, url = serve()
    answers: list[httpx.Response] = []

    def call() -> None:
        answers.append(httpx.post(f"{url}/v1/jobs", json=JOB, headers={"Prefer": "wait=60"}, timeout=60))

    caller = threading.Thread(target=call)
    caller.start()
    waited = threading.Event()
    while messages() == 0:
        waited.wait(0.005)
    process.send_signal(signal.SIGTERM)
    caller.join(20)
    assert process.wait(20) == -signal.SIGTERM
    (answer,) = answers
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    page = database.run(read.page, "default", Filters(), None, 10)
    assert [str(job.id) for job in page.jobs] == [answer.json()["id"]]
    assert messages() == 1


def test_several_processes_serve_one_port(serve: Serve) -> None:
    _, url = serve(2)
    with httpx.Client(base_url=url) as client:
        ids = [client.post("/v1/jobs", json=JOB).json()["id"] for _ in range(5)]
    for id_ in ids:
        assert httpx.get(f"{url}/v1/jobs/{id_}").status_code == 200


def test_a_watcher_whose_text_is_none_is_closed_and_writes_no_log(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "api.log"
    with file.open("wb") as log:
        process, url = serve(2, log)
    with connect(f"{url.replace('http://', 'ws://')}/ws/cluster-status") as socket:
        socket.recv()
        socket.send(b"\xff", text=True)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1007
    process.terminate()
    process.wait(20)
    said = file.read_text()
    assert "Application startup complete" in said
    for chatter in ("Traceback", "UTF-8", "WebSocket", "connection open", "connection closed"):
        assert chatter not in said
