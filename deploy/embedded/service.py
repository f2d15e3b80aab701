"""The service's own processes as pieces: each one's command, environment and log, and how it shows that it is ready."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deploy import pieces
from deploy.devices import Device
from deploy.embedded import probes
from deploy.embedded.piece import Program
from deploy.embedded.process import Command
from deploy.environment import merged
from tasks.settings import Settings
from tasks.worker import CHILD_LOST

_SPARE_S = 5.0


@dataclass(frozen=True)
class Service:
    """Makes pieces from settings that name every server."""

    settings: Settings
    environment: Mapping[str, str]
    say: Callable[[str], None] = lambda _: None
    counters: Mapping[str, str] = field(default_factory=dict)
    """What makes the API processes count together, if they do."""

    def api(self, name: str, listener: socket.socket) -> Program:
        """One API process on a socket that it may share with others."""
        descriptor = listener.fileno()
        argv = (sys.executable, "-P", "-m", "deploy.embedded.serve", str(descriptor), self.settings.log_level)
        host, port = listener.getsockname()[:2]
        return self._program(
            name,
            argv,
            extra=self.counters,
            pass_fds=(descriptor,),
            where=address(listener),
            ready=probes.answers_http(host, port, "/healthz"),
        )

    def worker(self, device: Device) -> Program:
        """The worker of a device; ready once its engine child has probed the device."""
        settings = self.settings
        return self._program(
            device.name,
            pieces.worker(settings, device.name),
            extra=device.environment,
            stop_timeout_s=settings.shutdown_s + _SPARE_S,
            ready=probes.beats(settings.redis_url, device.name),
            fall=CHILD_LOST,
        )

    def chores(self) -> Program:
        """The worker of the service's own tasks."""
        return self._program("chores", pieces.chores(self.settings))

    def sender(self) -> Program:
        """What sends webhooks; ready once it has looked what is due."""
        return self._program("sender", pieces.sender(self.settings), ready=probes.sends(self.settings.redis_url))

    def feeder(self) -> Program:
        """What works batches through; ready once it looks for them."""
        return self._program("feeder", pieces.feeder(self.settings), ready=probes.feeds(self.settings.redis_url))

    def beat(self) -> Program:
        """The clock of the sweeps."""
        return self._program("beat", pieces.beat(self.settings))

    def flower(self) -> Program:
        """Flower, on a port of its own that the API asks."""
        settings = self.settings
        return self._program(
            "flower",
            pieces.flower(settings),
            extra=pieces.flower_environment(settings),
            where=f"{settings.flower_host}:{settings.flower_port}",
            ready=probes.accepts(settings.flower_host, settings.flower_port),
        )

    def _program(
        self,
        name: str,
        argv: tuple[str, ...],
        *,
        extra: Mapping[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
        stop_timeout_s: float = 10.0,
        where: str = "",
        ready: Callable[[float], bool] | None = None,
        fall: str = "",
    ) -> Program:
        folder = self.settings.data_dir
        command = Command(
            name=name,
            argv=argv,
            log=folder / "logs" / f"{name}.log",
            env=merged(self.environment, self.settings) | dict(extra or {}),
            cwd=folder,
            pass_fds=pass_fds,
            stop_timeout_s=stop_timeout_s,
        )
        return Program(command, where=where, ready=ready, fall=fall, say=self.say)


def address(listener: socket.socket) -> str:
    """`host:port` of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
