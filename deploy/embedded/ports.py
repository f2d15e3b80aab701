"""Free ports on loopback."""

from __future__ import annotations

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago. Another process may take it before its user binds it; the start then fails."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def chosen(port: int) -> int:
    """The port asked for, or a free one for 0."""
    return port or free_port()
