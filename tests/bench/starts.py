"""Starts the stack in a folder of its own and measures how long that takes, in an empty folder and in a used one."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from deploy.embedded.ports import free_port
from tests.bench import models
from tests.bench.case import Stack
from tests.bench.client import Address, Connection, ask_json
from tests.bench.figures import Reading, at_most
from tests.bench.jobs import FAKE, WAIT_S, submission
from tests.bench.peers import Peer
from tests.bench.rows import Rows

NAME = "start"
TITLE = (
    "start of the whole embedded stack: PostgreSQL, Valkey, migration, API, worker with its engine, chores, beat, "
    "feeder, Flower"
)
NOTES = (
    "ready: from the first process until /readyz says ok; first result: until a weightless job has come back",
    "cold: an empty data folder, the database is created; warm: a folder with data; the disk cache is warm in both",
)


@asynccontextmanager
async def folder() -> AsyncIterator[Path]:
    """A data folder that the unprivileged account of the servers may enter, with the benchmark's models in it."""
    made = _made()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _made() -> Path:
    made = Path(tempfile.mkdtemp(prefix="roost-bench-"))
    made.chmod(0o755)
    models.write(made / "catalog")
    return made


@asynccontextmanager
async def running(data: Path, settings: Mapping[str, str], readings: list[Reading], how: str) -> AsyncIterator[Stack]:
    """The stack on free ports over this folder; how long the start took goes to `readings`."""
    environment = {
        "ROOST_CATALOG": str(data / "catalog"),
        "ROOST_FLOWER_PORT": str(free_port()),
        "ROOST_WEBHOOK_ALLOW": "127.0.0.1",
        **settings,
    }
    began = time.perf_counter()
    peer = await Peer.start("tests.bench.served", str(data / "data"), environment=environment, log=data / "served.log")
    try:
        url = urlsplit(peer.hello["url"])
        address = Address(url.hostname or "127.0.0.1", url.port or 80)
        ready = time.perf_counter() - began
        await _first(address)
        first = time.perf_counter() - began
        goal = at_most(15.0) if how == "warm" else None
        readings += [Reading(f"{how}: ready", ready, "s", goal), Reading(f"{how}: first result", first, "s", goal)]
        database_url = peer.hello["database_url"]
        yield Stack(
            address=address,
            pid=peer.pid,
            redis_url=peer.hello["redis_url"],
            rows=Rows(database_url),
            folder=data,
            database_url=database_url,
            environment=peer.hello["environment"],
        )
    finally:
        began = time.perf_counter()
        await peer.stop(patience_s=60)
        readings.append(Reading(f"{how}: stop", time.perf_counter() - began, "s"))


async def _first(address: Address) -> None:
    """One weightless job, there and back."""
    connection = await Connection.open(address)
    try:
        await ask_json(connection, submission(FAKE, ["the first text"], WAIT_S), (200,))
    finally:
        await connection.close()
