"""The images' health checks: `python -m deploy.health NAME` of CHECKS; 0 when well, else it says why.

Each asks the thing itself: the API whether it reaches database and broker, the engine child for a beat that came after
a probe of its device, the chores worker for an answer by way of the broker, the clock for what it last wrote, the
feeder for a beat, Flower for a page behind its password.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import sys
import time
from collections.abc import Callable, Mapping

import msgpack
import redis

from tasks import keys
from tasks.service_settings import FLOWER_PREFIX
from tasks.settings import Settings

FRESH_S = 15.0
"""A worker beats every two seconds; after this long without a beat it counts as dead."""

TICKED_S = 400.0
"""The clock writes its schedule every three minutes while it ticks."""

PATIENCE_S = 3.0


class Unwell(Exception):
    """The process does not do its work; the message says what was seen."""


def api(settings: Settings) -> None:
    """The API reaches database and broker. That no worker is there is no fault of this container's."""
    status, body = _get(settings.port, "/readyz", {})
    if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
        reasons: dict[str, str] = json.loads(body)["reasons"]
        if missing := {part: reason for part, reason in reasons.items() if part != "worker"}:
            raise Unwell(" ".join(missing.values()))
    elif status != http.HTTPStatus.OK:
        raise Unwell(f"/readyz answered {status}")


def worker(settings: Settings) -> None:
    """The engine child of this host has probed its device and said so a moment ago."""
    with redis.Redis.from_url(settings.redis_url, socket_timeout=PATIENCE_S) as client:
        beats = [msgpack.unpackb(beat) for name, beat in client.hgetall(keys.WORKERS).items() if _ours(name.decode())]
    if not beats:
        raise Unwell(f"no worker of {socket.gethostname()} has beaten yet")
    last = max(beats, key=lambda beat: float(beat["at"]))
    age = time.time() - last["at"]
    if age > FRESH_S:
        raise Unwell(f"the last beat is {age:.0f} s old")
    if last.get("lost"):
        raise Unwell("the device does not compute any more")


def chores(_: Settings) -> None:
    """The chores worker of this host answers a ping that went by way of the broker."""
    # Here, not above: importing it takes a second and reads the settings, and no other check needs it.
    from tasks.celery import app

    if not any(_ours(name) for reply in app.control.ping(timeout=PATIENCE_S) for name in reply):
        raise Unwell("no answer to a ping by way of the broker")


def beat(settings: Settings) -> None:
    """The clock has written its schedule not long ago."""
    written = max((file.stat().st_mtime for file in settings.data_dir.glob("beat-schedule*")), default=None)
    if written is None:
        raise Unwell(f"no schedule in {settings.data_dir} yet")
    if time.time() - written > TICKED_S:
        raise Unwell(f"the schedule was last written {time.time() - written:.0f} s ago")


def feeder(settings: Settings) -> None:
    """The feeder of this host has looked for batches a moment ago."""
    with redis.Redis.from_url(settings.redis_url, socket_timeout=PATIENCE_S) as client:
        last = client.get(keys.feeder(socket.gethostname()))
    if last is None:
        raise Unwell(f"no feeder of {socket.gethostname()} has been heard of lately")
    if (age := time.time() - float(last)) > FRESH_S:
        raise Unwell(f"it last looked for batches {age:.0f} s ago")


def sender(settings: Settings) -> None:
    """The sender of webhooks of this host has said a moment ago that it lives."""
    with redis.Redis.from_url(settings.redis_url, socket_timeout=PATIENCE_S) as client:
        last = client.get(keys.sender(socket.gethostname()))
    if last is None:
        raise Unwell(f"no sender of {socket.gethostname()} has been heard of lately")
    if (age := time.time() - float(last)) > FRESH_S:
        raise Unwell(f"it was last heard of {age:.0f} s ago")


def flower(settings: Settings) -> None:
    """Flower answers a call that needs its password."""
    secret = base64.b64encode(settings.flower_auth.encode()).decode()
    path = f"{FLOWER_PREFIX}/api/workers"
    status, _ = _get(settings.flower_port, path, {"Authorization": f"Basic {secret}"} if settings.flower_auth else {})
    if status != http.HTTPStatus.OK:
        raise Unwell(f"{path} answered {status}")


CHECKS: Mapping[str, Callable[[Settings], None]] = {
    "api": api,
    "worker": worker,
    "chores": chores,
    "beat": beat,
    "feeder": feeder,
    "sender": sender,
    "flower": flower,
}


def main(arguments: list[str]) -> int:
    """Run one check and give its exit status."""
    if len(arguments) != 1 or arguments[0] not in CHECKS:
        sys.stderr.write(f"usage: python -m deploy.health {'|'.join(CHECKS)}\n")
        return 2
    try:
        CHECKS[arguments[0]](Settings.from_environment())
    except (Unwell, OSError, ValueError, http.client.HTTPException, redis.RedisError) as error:
        sys.stderr.write(f"{arguments[0]}: {error}\n")
        return 1
    return 0


def _ours(node: str) -> bool:
    return node.rpartition("@")[2] == socket.gethostname()


def _get(port: int, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
