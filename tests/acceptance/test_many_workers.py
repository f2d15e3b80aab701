"""Two workers on one device: together they never hold more than it has, and neither holds up or outlives the other."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine import machine
from engine.entries import Entries

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
MakeCaller = Callable[[Any], Any]

MIB = 2**20
ROOM = 1000 * MIB
"""What the two may hold together."""
BUDGET = 700 * MIB
"""What each may hold."""


def fake(megabytes: int, **load: Any) -> dict[str, Any]:
    return {
        "family": "fake",
        "tasks": {"encode": {"dims": 8}},
        "parameters": 0,
        "max_length": 512,
        "load": {"dims": 8, "bytes": megabytes * MIB, "load_seconds": 0.05, **load},
    }


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    running = start_stack(
        budget=str(BUDGET),
        reserve=str(machine.total_bytes() - ROOM),
        models={"left": fake(600), "right": fake(600)} | {f"m{n}": fake(300) for n in range(5)},
        min_stay_s=0.1,
    )
    running.add_worker("cpu2")
    return running


@pytest.fixture
def someone(stack: Any, caller: MakeCaller) -> Any:
    return caller(stack)


class Watcher:
    """Reads the account that the workers share, as any process on the device may."""

    def __init__(self, folder: Path) -> None:
        self._entries = Entries(folder, machine.identity())

    def held(self) -> dict[int, int]:
        """Bytes that each worker's engine holds, by its pid."""
        with self._entries.locked() as locked:
            assert locked
            return {pid: share.held for pid, share in self._entries.others().items() if pid != os.getpid()}

    def close(self) -> None:
        self._entries.leave()


@pytest.fixture
def watcher(stack: Any) -> Any:
    one = Watcher(Path(stack.settings.ledger_dir))
    yield one
    one.close()


def test_together_two_workers_never_hold_more_than_the_device_has(someone: Any, watcher: Watcher) -> None:
    ids = [someone.submit([f"text {n}"], f"m{n % 5}") for n in range(60)]
    ended: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: ended.append(someone.ends(ids)))
    waiting.start()
    most = 0
    while waiting.is_alive():
        most = max(most, sum(watcher.held().values()))
        waiting.join(0.001)
    assert {job["status"] for job in ended[0].values()} == {"succeeded"}
    assert 300 * MIB <= most <= ROOM


def test_two_models_that_the_two_cannot_hold_at_once_both_make_progress(someone: Any, watcher: Watcher) -> None:
    def stream(model: str) -> list[dict[str, Any]]:
        return [someone.end(someone.submit([f"{model} {n}"], model)) for n in range(6)]

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(stream, ("left", "right")))
    assert {job["status"] for jobs in both for job in jobs} == {"succeeded"}
    assert sum(watcher.held().values()) <= ROOM


def test_what_a_killed_worker_held_serves_the_other_at_once(stack: Any, someone: Any, watcher: Watcher) -> None:
    """The one that has the model is stopped, so that it gives nothing up and takes nothing on; then it is killed."""
    assert someone.post(["a text"], "left", wait=30).json()["status"] == "succeeded"
    [holder] = [pid for pid, held in watcher.held().items() if held >= 600 * MIB]
    workers = {name: stack.part(name) for name in ("cpu", "cpu2")}
    [first] = [name for name, worker in workers.items() if holder in worker.children()]
    for pid in (workers[first].pid, holder):
        os.kill(pid, signal.SIGSTOP)
    id_ = someone.submit(["a text"], "right")
    job = someone.client.get(f"/v1/jobs/{id_}", params={"wait": 1}).json()
    assert job["status"] == "queued"
    assert watcher.held()[holder] >= 600 * MIB
    workers[first].kill()
    began = time.monotonic()
    assert someone.end(id_)["status"] == "succeeded"
    assert time.monotonic() - began < 5
    assert holder not in watcher.held()
    workers[first].start()
    assert someone.post(["a text"], "left", wait=30).json()["status"] == "succeeded"
