"""The queue of a request follows what its model has proved to cost on the hardware that is there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgpack
import pytest

from catalog.schema import CostCoefficients
from tasks import keys
from tasks.db import Database
from tasks.store import read
from tasks.store.costs import Cost, put

if TYPE_CHECKING:
    from tests.integration.api.conftest import Api

NOW = datetime.now(UTC)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


def learned(database: Database, hardware: str, factor: float) -> None:
    price = CostCoefficients(base=factor, per_token=0.01 * factor)
    database.run(put, [Cost(hardware, "org/model", price, {})], NOW)


async def live(api: Api, *hardware: str) -> None:
    """Heartbeats of workers on such hardware, and the API's look at them and at the prices."""
    for kind in hardware:
        beat = {"name": f"w-{kind}", "at": time.time(), "device": "cuda:0", "kind": kind}
        await api.services.redis.hset(keys.WORKERS, f"w-{kind}", msgpack.packb(beat))
    await api.services.presence.live()
    await api.services.prices.refresh()


async def bucket(api: Api, database: Database) -> str:
    id_ = UUID((await api.submit("a text")).json()["id"])
    return str(database.run(read.submissions, [id_])[0].bucket)


async def test_a_model_that_proved_a_hundred_times_slower_goes_into_another_queue(api: Api, database: Database) -> None:
    assert await bucket(api, database) == "xs"
    learned(database, "cpu", 100)
    await live(api, "cpu")
    assert await bucket(api, database) == "m"


async def test_a_price_of_hardware_that_is_not_there_counts_for_nothing(api: Api, database: Database) -> None:
    learned(database, "cuda", 100)
    await live(api, "cpu")
    assert await bucket(api, database) == "xs"


async def test_of_several_kinds_of_hardware_the_quickest_for_the_model_sets_the_price(
    api: Api, database: Database
) -> None:
    learned(database, "cuda", 100)
    learned(database, "cpu", 1000)
    await live(api, "cpu", "cuda")
    assert await bucket(api, database) == "m"


async def test_a_database_that_refuses_leaves_the_last_prices(api: Api, database: Database) -> None:
    learned(database, "cpu", 100)
    await live(api, "cpu")
    database.run(lambda conn: conn.exec_driver_sql("DROP TABLE costs").close())
    with pytest.raises(Exception, match="costs"):
        await api.services.prices.refresh()
    assert await bucket(api, database) == "m"


async def test_prices_are_read_without_being_asked_for(api: Api, database: Database) -> None:
    learned(database, "cpu", 100)
    async with asyncio.timeout(20):
        while await bucket(api, database) != "m":
            pass
