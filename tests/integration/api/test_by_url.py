"""Files by URL, through a real API and a real feeder: fetched at the door, so that what is stored has them in it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgpack
import pytest

from api.feeding.feeder import Feeder
from api.feeding.services import Feeding, feeding
from catalog.loader import Catalog
from catalog.schema import CostCoefficients, EncodeFacts, Spec, Tasks
from tasks.batches import OPEN, Status
from tasks.prepare import CALLER
from tasks.settings import Settings
from tasks.store import batches, files
from tests.integration.api.given import batch_of
from tests.unit.tasks.webhooks.receivers import INSIDE, PUBLIC, Receiver, receiving, says, stalls

Api = Any
Consumer = Any
SECRET = "token-of-a-caller"


@pytest.fixture
def catalog() -> Catalog:
    """A model that reads images beside the text, which the consumer looks at alone."""
    return Catalog(
        [
            Spec(
                id="org/model",
                family="fake",
                tasks=Tasks(encode=EncodeFacts(dims=8)),
                parameters=0,
                max_length=64,
                inputs=("text", "image"),
                cost=CostCoefficients(base=1.0, per_token=0.01),
            )
        ]
    )


@pytest.fixture
def settings(database_url: str, broker_url: str, tmp_path: Path) -> Settings:
    return Settings(
        database_url=database_url,
        broker_url=broker_url,
        blobs=str(tmp_path / "blobs"),
        max_body_bytes=1 << 20,
        fetch_allow=PUBLIC,
        fetch_timeout_s=20.0,
    )


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with receiving(says("200 OK", b"an image")) as it:
        yield it


def pictured(url: str, text: str = "a text") -> dict[str, Any]:
    return {"text": text, "images": [{"url": url}]}


async def test_an_item_with_a_bad_url_fails_alone_and_nothing_of_it_is_told(
    api: Api, consumer: Consumer, server: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving(says("302 Found\r\nLocation: http://127.0.0.1/hidden", b"hidden")) as moved:
        with caplog.at_level(logging.DEBUG):
            reply = await api.submit(
                pictured(f"http://{PUBLIC}:{server.port}/?key={SECRET}"),
                pictured(f"http://{INSIDE}:{server.port}/?key={SECRET}"),
                pictured(f"http://{PUBLIC}:{moved.port}/?key={SECRET}"),
                "plain",
                wait=20,
            )
    body = reply.json()

    assert (reply.status_code, body["status"]) == (200, "succeeded")
    rows = body["result"]["items"]
    assert [row.get("error", {}).get("code") for row in rows] == [None, "url_refused", "url_unreachable", None]
    assert rows[1]["error"]["param"] == "items[1].images[0].url"
    assert "hidden" not in reply.text
    (job,) = consumer.taken
    assert msgpack.unpackb(job.inputs)[0] == {"text": "a text", "images": [{"data": b"an image"}]}
    assert SECRET not in caplog.text
    assert SECRET.encode() not in job.inputs


async def test_a_repeat_is_the_same_by_its_url(api: Api, consumer: Consumer, server: Receiver) -> None:
    url = f"http://{PUBLIC}:{server.port}/"
    first, again, other = [
        await api.submit(pictured(given), wait=20, headers={"Idempotency-Key": "k"}) for given in (url, url, url + "b")
    ]

    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")


async def test_a_server_that_fetches_nothing_says_so(start_api: Any, consumer: Consumer) -> None:
    api = await start_api(fetch=False)
    reply = await api.submit(pictured("https://files.example.com/"))

    assert reply.status_code == 422
    assert reply.json()["error"]["param"] == "items[0].images[0].url"
    assert "ROOST_FETCH" in reply.json()["error"]["message"]


async def lines_of(it: Feeding, id_: Any) -> list[dict[str, Any]]:
    file = await it.database.run(files.get, id_, CALLER)
    return [json.loads(line) for line in b"".join(it.blobs.chunks(file.blob)).splitlines()]


@pytest.fixture
async def it(settings: Settings, catalog: Catalog) -> AsyncIterator[Feeding]:
    """The parts of a feeder that runs."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(feeding(settings, catalog))
        feeder = Feeder(made, "one")
        task = asyncio.create_task(feeder.run())
        yield made
        feeder.close()
        await asyncio.gather(task, return_exceptions=True)


def line(number: int, url: str) -> bytes:
    body = {"model": "org/model", "items": [pictured(url)]}
    return json.dumps({"custom_id": str(number), "method": "POST", "url": "/v1/encode", "body": body}).encode() + b"\n"


async def test_lines_of_a_batch_have_their_files_fetched(it: Feeding, consumer: Consumer, server: Receiver) -> None:
    urls = [f"http://{host}:{server.port}/" for host in (PUBLIC, INSIDE, PUBLIC)]
    batch = await batch_of(it, b"".join(line(n, url) for n, url in enumerate(urls)), endpoint="/v1/encode")
    async with asyncio.timeout(30):
        while batch.status in OPEN:
            await asyncio.sleep(0.02)
            batch = await it.database.run(batches.get, batch.id, CALLER)

    assert batch.status is Status.COMPLETED
    assert [one["custom_id"] for one in await lines_of(it, batch.output_file)] == ["0", "2"]
    (failed,) = await lines_of(it, batch.error_file)
    assert "url_refused" in json.dumps(failed)


async def test_a_cancel_waits_for_no_server(it: Feeding, consumer: Consumer) -> None:
    async with receiving(stalls) as slow:
        batch = await batch_of(it, line(0, f"http://{PUBLIC}:{slow.port}/"), endpoint="/v1/encode")
        await asyncio.wait_for(slow.came.wait(), 20)
        await it.database.run(batches.cancel, batch.id, CALLER)
        async with asyncio.timeout(5):
            while batch.status in OPEN:
                await asyncio.sleep(0.02)
                batch = await it.database.run(batches.get, batch.id, CALLER)

    assert batch.status is Status.CANCELLED
