"""What a feeder that starts may have at once of what another one held."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.feeding.feeder import Feeder
from api.feeding.heirs import inherit, lease_name, lives
from api.feeding.services import Feeding, feeding
from catalog.loader import Catalog
from tasks.settings import Settings
from tasks.store import batch_leases, leases
from tests.integration.api.given import batch_of

LONG_S = 3600.0


@pytest.fixture
async def it(database_url: str, broker_url: str, tmp_path: Path, catalog: Catalog) -> AsyncIterator[Feeding]:
    settings = Settings(database_url=database_url, broker_url=broker_url, blobs=str(tmp_path))
    async with feeding(settings, catalog) as made:
        yield made


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def hold(it: Feeding, lease: str) -> None:
    await batch_of(it, b"{}\n")
    assert await it.database.run(batch_leases.claim, lease, LONG_S, urgent=False) is not None


async def test_leases_of_the_dead_of_this_host_are_free_and_no_others(it: Feeding, dead: int) -> None:
    ours = [lease_name("here", pid, "own") for pid in (dead, os.getpid())]
    others = [
        lease_name("here", os.getppid(), "alive"),
        lease_name("there", dead, "of another host"),
        lease_name("here-too", dead, "of a host whose name begins alike"),
        "here:name of no such form",
    ]
    for lease in (*ours, *others):
        await hold(it, lease)

    assert sorted(await inherit(it, "here")) == sorted(ours)
    assert sorted(await it.database.run(leases.held, "")) == sorted(others)
    assert await it.database.run(batch_leases.claim, "heir", LONG_S, urgent=False) is not None


async def test_a_feeder_works_at_once_on_what_a_dead_one_held(it: Feeding, dead: int) -> None:
    await hold(it, lease_name("here", dead, "own"))
    feeder = Feeder(it, "here")
    feeder.close()
    await feeder.run()
    assert await it.database.run(leases.held, "") == []


def test_who_lives(dead: int) -> None:
    assert lives(os.getpid())
    assert lives(1)
    assert not lives(dead)
    assert not lives(2**80)
