"""The command of each piece, the same in the embedded stack and in a container. Pure."""

from __future__ import annotations

import sys

from tasks.queues import SWEEP_QUEUE, WEBHOOK_QUEUE, queue_names
from tasks.service_settings import FLOWER_PREFIX
from tasks.settings import Settings, plain_redis

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_QUIET = ("--without-gossip", "--without-mingle")


class UnsafeFlowerError(Exception):
    """Flower would be open to the network: set ROOST_FLOWER_AUTH=user:password, or ROOST_FLOWER_PORT=0 for none."""


def api(settings: Settings) -> tuple[str, ...]:
    """The API under uvicorn, which runs and restarts the processes behind the port itself."""
    where = (settings.host, str(settings.port))
    return (*_module("deploy.serve"), *where, str(settings.api_processes), settings.log_level)


def worker(settings: Settings, name: str) -> tuple[str, ...]:
    """A device worker: one message loop, which starts the engine child itself."""
    queues = ("-Q", ",".join(queue_names()))
    return (*_celery("worker"), "-P", "solo", *queues, "-n", f"{name}@%h", *_QUIET, *_level(settings))


def chores(settings: Settings) -> tuple[str, ...]:
    """The worker of the service's own tasks, such as the sweep: ordinary Celery, no device."""
    return _plain("chores", SWEEP_QUEUE, settings)


def sender(settings: Settings) -> tuple[str, ...]:
    """What sends webhooks: ordinary Celery, no device. One is enough; several share the deliveries."""
    return _plain("sender", WEBHOOK_QUEUE, settings)


def feeder(settings: Settings) -> tuple[str, ...]:
    """What works batches through. One is enough; several share the batches."""
    return _module("api.feeding")


def beat(settings: Settings) -> tuple[str, ...]:
    """The clock that sends the sweeps. Run one; a second one only sends them twice."""
    schedule = settings.data_dir.absolute() / "beat-schedule"
    return (*_celery("beat"), "-s", str(schedule), "--pidfile=", *_level(settings))


def flower(settings: Settings) -> tuple[str, ...]:
    """Flower, which the API hands on, with what it keeps bounded. Its credentials go by `flower_environment`."""
    return (
        *_celery("flower"),
        *(f"--address={settings.flower_host}", f"--port={settings.flower_port}", f"--url_prefix={FLOWER_PREFIX}"),
        *("--max_tasks=10000", "--purge_offline_workers=60", f"--logging={settings.log_level}"),
    )


def flower_environment(settings: Settings) -> dict[str, str]:
    """What Flower reads from its environment: the broker in the form it knows, and who may enter.

    Raises UnsafeFlowerError when it would listen beyond loopback without a password.
    """
    if settings.flower_host not in _LOOPBACK and not settings.flower_auth:
        raise UnsafeFlowerError(
            f"Flower on {settings.flower_host} needs a password: "
            "set ROOST_FLOWER_AUTH=user:password, or ROOST_FLOWER_PORT=0 for none"
        )
    user, _, password = settings.flower_auth.partition(":")
    if settings.flower_auth and (not user or not password or "," in settings.flower_auth):
        raise UnsafeFlowerError("ROOST_FLOWER_AUTH must read user:password, without a comma: Flower splits at commas")
    broker = {"ROOST_BROKER_URL": plain_redis(settings.broker_url)}
    return broker | ({"FLOWER_BASIC_AUTH": settings.flower_auth} if settings.flower_auth else {})


def _plain(name: str, queue: str, settings: Settings) -> tuple[str, ...]:
    threads = ("-P", "threads", "-c", "4")
    return (*_celery("worker"), *threads, "-Q", queue, "-n", f"{name}@%h", *_QUIET, *_level(settings))


def _celery(command: str) -> tuple[str, ...]:
    return (*_module("celery"), "-A", "tasks.celery", command)


def _module(name: str) -> tuple[str, ...]:
    # -P: a folder named `tasks` or `api` where the command happens to run must not hide ours.
    return (sys.executable, "-P", "-m", name)


def _level(settings: Settings) -> tuple[str, ...]:
    return ("-l", settings.log_level)
