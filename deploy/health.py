"""The images' health checks: `python -m deploy.health api|worker|jobs|flower`. Ends with 0 when well, else says why.

Each asks the thing itself: the API for its readiness, the engine child for a beat that came after a probe of its
device, the jobs worker for an answer by way of the broker, Flower for a page behind its password.
"""

from __future__ import annotations

import base64
import http.client
import socket
import sys
import time
from collections.abc import Callable, Mapping

import msgpack
import redis

from tasks import keys
from tasks.settings import Settings

FRESH_S = 15.0
"""A worker beats every two seconds; after this long without a beat it counts as dead."""

PATIENCE_S = 3.0


class Unwell(Exception):
    """The process does not do its work; the message says what was seen."""


def api(settings: Settings) -> None:
    """The API is ready to take jobs."""
    _get(settings.port, "/readyz", {})


def worker(settings: Settings) -> None:
    """The engine child of this host has probed its device and said so a moment ago."""
    with redis.Redis.from_url(settings.redis_url, socket_timeout=PATIENCE_S) as client:
        beats = [msgpack.unpackb(beat) for name, beat in client.hgetall(keys.WORKERS).items() if _ours(name.decode())]
    age = min((time.time() - beat["at"] for beat in beats), default=None)
    if age is None:
        raise Unwell(f"no worker of {socket.gethostname()} has beaten yet")
    if age > FRESH_S:
        raise Unwell(f"the last beat is {age:.0f} s old")


def jobs(_: Settings) -> None:
    """The jobs worker of this host answers a ping that went by way of the broker."""
    # Here, not above: importing it takes a second and reads the settings, and no other check needs it.
    from tasks.celery import app

    if not any(_ours(name) for reply in app.control.ping(timeout=PATIENCE_S) for name in reply):
        raise Unwell("no answer to a ping by way of the broker")


def flower(settings: Settings) -> None:
    """Flower answers a call that needs its password."""
    secret = base64.b64encode(settings.flower_auth.encode()).decode()
    _get(settings.flower_port, "/api/workers", {"Authorization": f"Basic {secret}"} if settings.flower_auth else {})


CHECKS: Mapping[str, Callable[[Settings], None]] = {"api": api, "worker": worker, "jobs": jobs, "flower": flower}


def main(arguments: list[str]) -> int:
    """Run one check and give its exit status."""
    if len(arguments) != 1 or arguments[0] not in CHECKS:
        sys.stderr.write(f"usage: python -m deploy.health {'|'.join(CHECKS)}\n")
        return 2
    try:
        CHECKS[arguments[0]](Settings())
    except (Unwell, OSError, http.client.HTTPException, redis.RedisError) as error:
        sys.stderr.write(f"{arguments[0]}: {error}\n")
        return 1
    return 0


def _ours(node: str) -> bool:
    return node.rpartition("@")[2] == socket.gethostname()


def _get(port: int, path: str, headers: Mapping[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise Unwell(f"{path} answered {answer.status}: {answer.read(500).decode(errors='replace')}")
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
