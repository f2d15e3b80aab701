"""What the servers of the stack have in common: one process in a folder of ours, on loopback, begun again at will."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from deploy.embedded.errors import EmbeddedError
from deploy.embedded.ports import chosen
from deploy.embedded.process import Command, Process


class EmbeddedServer:
    """A server as a piece of the stack. A kind of server says how it is begun and when it answers."""

    name: ClassVar[str]
    title: ClassVar[str]
    """Its name in messages."""
    start_s: ClassVar[float]
    """How long a start may take."""

    def __init__(self, folder: Path, log: Path, *, port: int = 0) -> None:
        self.folder = folder.absolute()
        self.log = log.absolute()
        self.port = chosen(port)
        self._process: Process | None = None

    @property
    def where(self) -> str:
        """The address it listens on."""
        return f"127.0.0.1:{self.port}"

    @property
    def started(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.alive

    @property
    def process(self) -> Process:
        """The server's process. Raises EmbeddedError before the first start."""
        if self._process is None:
            raise EmbeddedError(f"{self.title} was not started")
        return self._process

    def begin(self) -> None:
        """Start without waiting."""
        self._process = Process(self._command())
        self._process.start()

    def await_ready(self, timeout_s: float) -> None:
        """Block until it answers. Raises NotReadyError."""
        self.process.await_ready(self._answers, timeout_s)

    def start(self, timeout_s: float | None = None) -> None:
        """Start and wait until it answers."""
        self.begin()
        self.await_ready(self.start_s if timeout_s is None else timeout_s)

    def stop(self) -> bool:
        """End it in its own good way, with its data on disk. False when it had to be killed."""
        return self._process is None or self._process.stop()

    def kill(self) -> None:
        """Kill it and all that it started at once, as the end of the machine would."""
        if self._process is not None:
            self._process.kill()

    def _command(self) -> Command:
        """Prepare its folder, and say how it is run."""
        raise NotImplementedError

    def _answers(self) -> bool:
        """Whether it serves. Raises EmbeddedError when another server answers in its place."""
        raise NotImplementedError
