"""The real stack for acceptance tests: real processes on free ports in a folder of their own.

`start_stack(…settings, models={id: spec})` starts one and gives it as `Running`; it is stopped when the module's tests
are over. Nothing is restarted by itself, so that a test decides what is dead and for how long. A failing test shows the
end of every log.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from deploy.embedded import family
from deploy.embedded.piece import Piece
from deploy.embedded.postgres import PostgresServer
from deploy.embedded.stack import Stack
from migrations import migrate
from tasks.settings import Settings

READY_S = 60.0
_DEFAULTS: Mapping[str, Any] = {
    "port": 0,
    "flower_port": 0,
    "device": "cpu",
    "events": "off",
    "sweep_s": 0.5,
    "lost_after_s": 1.0,
    "held_lease_s": 3.0,
    "job_lease_s": 3.0,
    "shutdown_s": 10.0,
}


class Part:
    """One process of a running stack, in a test's hands."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self.name = piece.name

    @property
    def pid(self) -> int:
        return self._piece.process.pid

    @property
    def alive(self) -> bool:
        return self._piece.process.alive

    @property
    def log(self) -> Path:
        return self._piece.process.command.log

    def children(self) -> list[int]:
        """Pids of all that it started, such as a worker's engine child."""
        return family.descendants(self.pid)

    def kill(self) -> None:
        """`kill -9`, of the process alone; what it started is left to notice."""
        self._piece.process.send(signal.SIGKILL)
        assert self._piece.process.wait(5)

    def kill_child(self) -> None:
        """`kill -9` of what it started, of a worker's engine child above all."""
        family.end_all(self.children())

    def signal(self, number: signal.Signals) -> None:
        self._piece.process.send(number)

    def wait(self, timeout_s: float = 30.0) -> bool:
        """Whether it has ended by itself in time."""
        return self._piece.process.wait(timeout_s)

    def stop(self) -> bool:
        """Ask it to end and wait; False if it had to be killed."""
        return self._piece.process.stop()

    def start(self, *, ready: bool = True) -> None:
        """Start it again, and wait until it does its work."""
        self._piece.begin()
        if ready:
            self._piece.await_ready(READY_S)

    def restart(self, *, ready: bool = True) -> None:
        """Stop it as its supervisor would, and start it again."""
        self.stop()
        self.start(ready=ready)


class Running:
    """A stack that runs, with a client on its API."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.url = stack.url
        self.settings = stack.settings
        self.client = httpx.Client(base_url=stack.url, timeout=60.0)

    def part(self, name: str) -> Part:
        """valkey, postgres, api, cpu, chores, beat, feeder, flower; api2 and so on after `add_api`."""
        return Part(self.stack.piece(name))

    @property
    def worker(self) -> Part:
        return self.part("cpu")

    @property
    def database_url(self) -> str:
        return self.settings.database_url

    @property
    def redis_url(self) -> str:
        return self.settings.redis_url

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        """An asynchronous client of the same API; the caller closes it."""
        return httpx.AsyncClient(**{"base_url": self.url, "timeout": 60.0, **options})

    def add_api(self) -> str:
        """One more API process on a port of its own; its address."""
        return self.stack.add_api()

    def add_worker(self, name: str = "cpu2") -> Part:
        """One more worker on the same device."""
        self.stack.add_worker(name)
        return self.part(name)

    def wipe_valkey(self) -> None:
        """Kill Valkey, throw away all that it held and start it again."""
        valkey = self.part("valkey")
        valkey.kill()
        shutil.rmtree(self.settings.data_dir / "valkey")
        valkey.start()

    def logs(self) -> dict[str, str]:
        """The end of each log by the name of its part."""
        return {path.stem: path.read_text(errors="replace")[-3000:] for path in self._log_files()}

    def close(self) -> None:
        self.client.close()
        self.stack.stop()

    def _log_files(self) -> list[Path]:
        return sorted((self.settings.data_dir / "logs").glob("*.log"))


StartStack = Callable[..., Running]


@pytest.fixture(scope="session")
def cluster(server_folder: Path) -> Path:
    """The folder of a PostgreSQL that has ended and is migrated: a copy is there sooner than a new one."""
    folder = server_folder / "cluster"
    server = PostgresServer(folder, server_folder / "cluster.log")
    try:
        server.start()
        migrate(server.url())
    finally:
        server.stop()
    return folder


@pytest.fixture(scope="module")
def start_stack(request: pytest.FixtureRequest, cluster: Path) -> Iterator[StartStack]:
    """Start a stack with the settings given, and the models by their specs as maps; stopped after the module."""
    running: list[Running] = request.config.stash.setdefault(_RUNNING, [])
    with ExitStack() as ending:

        def start(models: Mapping[str, Mapping[str, Any]] | None = None, **settings: object) -> Running:
            folder = Path(tempfile.mkdtemp(prefix="roost-stack-"))
            # A folder that an unprivileged account may enter, which pytest's own are not when root runs the tests.
            folder.chmod(0o755)
            ending.callback(shutil.rmtree, folder, ignore_errors=True)
            values = {
                **_DEFAULTS,
                **settings,
                "data_dir": folder / "data",
                "catalog": str(_catalog(folder, models or {})),
                # What other tests do at the same time on this machine is none of this stack's business.
                "ledger_dir": str(folder / "ledger"),
            }
            _copy(cluster, folder / "data" / "postgres")
            stack = Stack(Settings.model_validate(values), print)
            ending.callback(stack.stop)
            try:
                stack.start(READY_S)
            except BaseException:
                for path in sorted((folder / "data" / "logs").glob("*.log")):
                    print(f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}")
                raise
            started = Running(stack)
            ending.callback(started.close)
            running.append(started)
            ending.callback(running.remove, started)
            return started

        yield start


def _copy(cluster: Path, to: Path) -> None:
    """With the owners of its files, whom PostgreSQL insists on."""

    def file(source: str, target: str) -> None:
        shutil.copy2(source, target)
        shutil.chown(target, *_owners(source))

    shutil.copytree(cluster, to, copy_function=file)
    for source in cluster.rglob("*"):
        if source.is_dir():
            shutil.chown(to / source.relative_to(cluster), *_owners(source))


def _owners(path: Path | str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_uid, status.st_gid


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for running in item.config.stash.get(_RUNNING, []):
            report.sections += [(f"log of {name}", text) for name, text in running.logs().items()]
    return report


_RUNNING = pytest.StashKey[list[Running]]()


def _catalog(folder: Path, models: Mapping[str, Mapping[str, Any]]) -> Path:
    catalog = folder / "catalog"
    catalog.mkdir()
    for name, spec in models.items():
        (catalog / f"{name.replace('/', '__')}.yaml").write_text(yaml.safe_dump({"id": name, **spec}))
    return catalog


class Caller:
    """Someone who uses the service by HTTP: submits, waits to the end, reads results."""

    def __init__(self, running: Running) -> None:
        self.client = running.client

    def post(
        self, texts: Sequence[str], model: str = "roost/fake", *, wait: float = 0, **fields: Any
    ) -> httpx.Response:
        """Submit one job of these texts; `wait` seconds by Prefer if given, headers by `headers`."""
        headers = dict(fields.pop("headers", {}))
        if wait:
            headers["Prefer"] = f"wait={wait:g}"
        body = {"verb": "encode", "model": model, "items": list(texts), **fields}
        return self.client.post("/v1/jobs", json=body, headers=headers)

    def submit(self, texts: Sequence[str], model: str = "roost/fake", **fields: Any) -> str:
        """The id of an accepted job."""
        answer = self.post(texts, model, **fields)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, id_: str) -> dict[str, Any]:
        answer = self.client.get(f"/v1/jobs/{id_}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def end(self, id_: str, patience_s: float = 60.0) -> dict[str, Any]:
        """The job once it has ended, by long polls that survive a front end's restart."""
        until = time.monotonic() + patience_s
        job: dict[str, Any] = {}
        while time.monotonic() < until:
            try:
                answer = self.client.get(f"/v1/jobs/{id_}", params={"wait": 10})
            except httpx.TransportError:
                continue
            assert answer.status_code in {200, 503}, answer.text
            job = answer.json() if answer.status_code == 200 else job
            if job.get("status") in ENDED:
                return job
        pytest.fail(f"job {id_} did not end in {patience_s} s: {job}")

    def ends(self, ids: Sequence[str], patience_s: float = 60.0) -> dict[str, dict[str, Any]]:
        """All of them, once they have ended."""
        until = time.monotonic() + patience_s
        return {id_: self.end(id_, max(1.0, until - time.monotonic())) for id_ in ids}

    def vectors(self, id_: str) -> NDArray[np.float32]:
        """The vectors of a job's stored result, one row an item."""
        answer = self.client.get(f"/v1/jobs/{id_}/result")
        assert answer.status_code == 200, answer.text
        return np.array([item["dense"]["values"] for item in answer.json()["items"]], dtype=np.float32)


ENDED = frozenset({"succeeded", "failed", "cancelled", "expired"})


@pytest.fixture
def caller() -> Callable[[Running], Caller]:
    """A caller of a running stack."""
    return Caller
