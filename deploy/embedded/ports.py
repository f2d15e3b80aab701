"""Free ports on loopback, and the socket that the API processes share."""

from __future__ import annotations

import socket

from deploy.embedded.errors import EmbeddedError

_BACKLOG = 2048


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago. Another process may take it before its user binds it; the start then fails."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def chosen(port: int) -> int:
    """The port asked for, or a free one for 0."""
    return port or free_port()


def listen(host: str, port: int, *, setting: str) -> socket.socket:
    """A listening socket; raises EmbeddedError, naming the setting, when the address is taken or not ours."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise EmbeddedError(
            f"cannot listen on {host}:{port} ({error.strerror or error}): choose another {setting}"
        ) from error
