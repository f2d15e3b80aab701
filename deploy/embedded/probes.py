"""How to tell that a piece does its work, asked from outside as its users would."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable

import msgpack
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks import keys

_STEP_S = 1.0


# A probe is given the wall-clock time at which its process began.


def answers_http(host: str, port: int, path: str, *, timeout_s: float = _STEP_S) -> Callable[[float], bool]:
    """Whether a GET gives a 2xx. On a socket that is bound already the request waits there for its process."""

    def probe(_: float) -> bool:
        return http_status(host, port, path, timeout_s=timeout_s) // 100 == 2

    return probe


def http_status(host: str, port: int, path: str, *, timeout_s: float = _STEP_S) -> int:
    """The status of a GET; 0 when nobody answers in time."""
    link = http.client.HTTPConnection(reachable(host), port, timeout=timeout_s)
    try:
        link.request("GET", path)
        return link.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        link.close()


def accepts(host: str, port: int) -> Callable[[float], bool]:
    """Whether a connection is taken."""

    def probe(_: float) -> bool:
        try:
            socket.create_connection((reachable(host), port), timeout=_STEP_S).close()
        except OSError:
            return False
        return True

    return probe


def beats(redis_url: str, worker: str) -> Callable[[float], bool]:
    """Whether a worker's engine child has told, since the worker began, that its device answers."""

    def probe(began: float) -> bool:
        try:
            with redis.Redis.from_url(redis_url, socket_timeout=_STEP_S, retry=Retry(NoBackoff(), 0)) as client:
                found = client.hgetall(keys.WORKERS)
        except redis.RedisError:
            return False
        newest = [
            msgpack.unpackb(body)["at"] for name, body in found.items() if name.decode().partition("@")[0] == worker
        ]
        return any(at >= began for at in newest)

    return probe


def feeds(redis_url: str) -> Callable[[float], bool]:
    """Whether the feeder of this host has looked for batches since it began."""
    return _said(redis_url, keys.feeder(socket.gethostname()))


def sends(redis_url: str) -> Callable[[float], bool]:
    """Whether the sender of webhooks of this host has said that it lives since it began."""
    return _said(redis_url, keys.sender(socket.gethostname()))


def _said(redis_url: str, key: str) -> Callable[[float], bool]:
    def probe(began: float) -> bool:
        try:
            with redis.Redis.from_url(redis_url, socket_timeout=_STEP_S, retry=Retry(NoBackoff(), 0)) as client:
                found = client.get(key)
        except redis.RedisError:
            return False
        return found is not None and float(found) >= began

    return probe


def reachable(host: str) -> str:
    """The address to connect to for an address to listen on."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
