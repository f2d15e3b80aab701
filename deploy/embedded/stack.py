"""The whole stack in one data folder: servers where no URL is given, then the service's own processes."""

from __future__ import annotations

import http
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from deploy import pieces
from deploy.broker_check import eviction_warning
from deploy.devices import assigned, visible_gpus
from deploy.embedded import probes, report
from deploy.embedded.errors import EmbeddedError
from deploy.embedded.family import started_at
from deploy.embedded.passwords import keep_password
from deploy.embedded.piece import Piece
from deploy.embedded.ports import listen
from deploy.embedded.postgres import PostgresServer
from deploy.embedded.service import Service, address
from deploy.embedded.supervisor import Supervisor
from deploy.embedded.valkey import ValkeyServer
from deploy.environment import masked_url
from migrations import migrate
from tasks.service_settings import FLOWER_PREFIX
from tasks.settings import Settings

_READY_S = 120.0
_SHARED = "PROMETHEUS_MULTIPROC_DIR"
_REDIS = ("roost://", "roosts://", "redis://", "rediss://", "unix://")


class Stack:
    """Start it, let its supervisor watch, stop it: from one thread, which must live as long as the stack."""

    def __init__(
        self, settings: Settings, say: Callable[[str], None], *, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.settings = settings.model_copy(update={"data_dir": settings.data_dir.absolute()})
        self.urls: dict[str, str] = {}
        self.supervisor = Supervisor(say, self._report)
        self._say = say
        self._environment = dict(environment)
        self._sockets: list[socket.socket] = []
        self._ready = False
        self._counters: Mapping[str, str] = {}

    @property
    def url(self) -> str:
        """Where the API listens."""
        return self.urls["api"]

    def piece(self, name: str) -> Piece:
        """A piece by its name: valkey, postgres, api, cpu or gpu0 and so on, chores, beat, feeder, sender, flower."""
        return next(piece for piece in self.supervisor.pieces if piece.name == name)

    def start(self, timeout_s: float = _READY_S) -> None:
        """Start all and wait until the service is ready. Raises EmbeddedError; call `stop` then, too."""
        end = time.monotonic() + timeout_s
        self._prepare()
        listener = self._listen(self.settings.port)
        self._start_servers(end)
        migrate(self.settings.database_url)
        self._say("migrated   the database has this version's tables")
        service = self._service(listener)
        self.supervisor.begin(*service)
        for piece in service:
            piece.await_ready(_left(end))
            self._say(_line(piece))
        host, port = listener.getsockname()[:2]
        service[0].process.await_ready(
            lambda: probes.http_status(host, port, "/readyz", timeout_s=5.0) == http.HTTPStatus.OK, _left(end)
        )
        for piece in service:
            # Some have no probe, and may have died while we waited for the others.
            piece.process.await_alive()
        self._ready = True
        self._report()

    def add_api(self) -> str:
        """Start one more API process, on a port of its own, and wait for it; its address."""
        listener = self._listen(0)
        name = f"api{len(self._sockets)}"
        piece = self._pieces().api(name, listener)
        self.urls[name] = f"http://{piece.where}"
        self.supervisor.begin(piece)
        piece.await_ready(_READY_S)
        return self.urls[name]

    def add_worker(self, name: str) -> None:
        """One more worker beside the others, on the first device, and wait for it."""
        device = replace(assigned(self.settings.device, visible_gpus(self._environment))[0], name=name)
        piece = self._pieces().worker(device)
        self.supervisor.begin(piece)
        piece.await_ready(_READY_S)

    def stop(self) -> list[str]:
        """Stop all, in reverse order and in bounded time; the names of those that had to be killed."""
        killed = self.supervisor.stop()
        for listener in self._sockets:
            listener.close()
        self._sockets.clear()
        self._ready = False
        if (self.settings.data_dir / report.FILE).exists():
            self._report()
        return killed

    def _prepare(self) -> None:
        """Refuse at once what would fail later, or fail open; then clear the folder of a stack that was killed."""
        if self.settings.flower_port:
            pieces.flower_environment(self.settings)
            if not self.settings.flower_auth:
                # Whoever has an account on this machine could ask it past the API otherwise.
                made = f"roost:{secrets.token_urlsafe(24)}"
                self.settings = self.settings.model_copy(update={"flower_auth": made})
        broker, notify = self.settings.broker_url, self.settings.notify_url
        if broker and not (notify or broker).startswith(_REDIS):
            raise EmbeddedError("this broker cannot wake who waits: set ROOST_NOTIFY_URL to a redis:// address too")
        folder = self.settings.data_dir
        folder.mkdir(parents=True, exist_ok=True)
        last = report.read(folder)
        if last and (found := report.end_leftovers(last)):
            self._say(f"a stack that was killed left {', '.join(found)} running; ended")

    def _listen(self, port: int) -> socket.socket:
        listener = listen(self.settings.host, port, setting="ROOST_PORT")
        self._sockets.append(listener)
        return listener

    def _start_servers(self, end: float) -> None:
        """Start those that have no URL, at once, and say of the others where they are."""
        folder, logs, given = self.settings.data_dir, self.settings.data_dir / "logs", self.settings
        valkey = postgres = None
        if not given.broker_url:
            password = keep_password(folder)
            valkey = ValkeyServer(folder / "valkey", logs / "valkey.log", port=given.valkey_port, password=password)
        if not given.database_url:
            postgres = PostgresServer(folder / "postgres", logs / "postgres.log", port=given.postgres_port)
        servers = [server for server in (valkey, postgres) if server is not None]
        self.supervisor.begin(*servers)
        for server in servers:
            server.await_ready(_left(end))
            self._say(_line(server))
        self.settings = given.model_copy(
            update={
                "broker_url": valkey.url() if valkey else given.broker_url,
                "database_url": postgres.url() if postgres else given.database_url,
            }
        )
        self.urls |= {
            "broker": masked_url(self.settings.broker_url),
            "database": masked_url(self.settings.database_url),
        }
        if warning := eviction_warning(self.settings.redis_url):
            self._say(f"WARNING: {warning}")

    def _service(self, listener: socket.socket) -> list[Piece]:
        if self.settings.api_processes > 1:
            self._counters = shared_counters(self.settings.data_dir / "metrics", self._environment)
        service = self._pieces()
        self.urls["api"] = f"http://{address(listener)}"
        count = self.settings.api_processes
        started: list[Piece] = [service.api("api" if count == 1 else f"api.{n}", listener) for n in range(1, count + 1)]
        started += [service.worker(one) for one in assigned(self.settings.device, visible_gpus(self._environment))]
        started += [service.chores(), service.beat(), service.feeder(), service.sender()]
        if self.settings.flower_port:
            self.urls["flower"] = f"{self.urls['api']}{FLOWER_PREFIX}/"
            started.append(service.flower())
        return started

    def _pieces(self) -> Service:
        return Service(self.settings, self._environment, self._say, self._counters)

    def _report(self) -> None:
        report.Report(
            pid=os.getpid(),
            ready=self._ready,
            data_dir=self.settings.data_dir,
            urls=self.urls,
            pieces=tuple(
                report.PieceReport(
                    name=piece.name,
                    pid=piece.process.pid,
                    started=started_at(piece.process.pid),
                    where=piece.where,
                    log=piece.process.command.log,
                )
                for piece in self.supervisor.pieces
            ),
        ).write()


def shared_counters(folder: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """What several API processes need so that a scrape of any of them tells of all: an empty folder that they share.

    One that the operator names is left to the operator.
    """
    if given := environment.get(_SHARED):
        return {_SHARED: given}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return {_SHARED: str(folder)}


def _left(end: float) -> float:
    return max(0.1, end - time.monotonic())


def _line(piece: Piece) -> str:
    return f"{piece.name:<10} pid {piece.process.pid:<7} {piece.where or '-':<21} {piece.process.command.log}"
