"""Backfills of documents by the API and a feeder, over real Postgres and Valkey; a consumer stands for the worker.

What their tests share.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.feeding.feeder import Feeder
from api.feeding.services import feeding
from catalog.loader import Catalog
from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from tasks.settings import Settings

Consumer = Any
Start = Callable[[str], Awaitable["asyncio.Task[None]"]]
ENDED = ("completed", "failed", "cancelled")
PARSE = {"step": "parse", "model": "org/parser"}
ENCODE = {"step": "encode", "model": "org/plain"}
CHUNK = {"step": "chunk", "options": {"size": 24, "unit": "chars", "overlap": 0}}


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """That of the other tests, with a parser of texts."""
    parser = Spec(
        id="org/parser",
        family="fake_parser",
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.DOCUMENT,))),
        parameters=0,
        max_length=64,
        unit="pages",
    )
    return Catalog([*(catalog.find(name).spec for name in ("org/model", "org/plain")), parser])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the server may read; beside it is what it may not."""
    found = tmp_path / "in"
    found.mkdir()
    return found


@pytest.fixture
def settings(database_url: str, broker_url: str, tmp_path: Path, folder: Path) -> Settings:
    return Settings(
        database_url=database_url,
        broker_url=broker_url,
        blobs=str(tmp_path / "blobs"),
        max_body_bytes=1 << 20,
        job_lease_s=2.0,
        backfill_sources=str(folder),
        backfill_in_flight=8,
    )


@pytest.fixture
async def start(settings: Settings, catalog: Catalog) -> AsyncIterator[Start]:
    """Starts feeders with parts of their own; all are stopped at the end."""
    async with AsyncExitStack() as stack:

        async def begin(name: str) -> asyncio.Task[None]:
            feeder = Feeder(await stack.enter_async_context(feeding(settings, catalog)), name)
            task = asyncio.create_task(feeder.run())

            async def end() -> None:
                feeder.close()
                await asyncio.gather(task, return_exceptions=True)

            stack.push_async_callback(end)
            return task

        yield begin


@pytest.fixture
async def http(start_api: Any) -> httpx.AsyncClient:
    client: httpx.AsyncClient = (await start_api()).http
    return client


def texts(folder: Path, count: int) -> list[str]:
    """So many documents; their names in order."""
    names = [f"{n:03}.txt" for n in range(count)]
    for n, name in enumerate(names):
        (folder / name).write_text(f"text number {n}", encoding="utf-8")
    return names


async def made(http: httpx.AsyncClient, steps: Sequence[Any], source: Mapping[str, Any], **fields: Any) -> Any:
    reply = await http.post("/v1/backfills", json={"source": source, "steps": steps, **fields})
    assert reply.status_code == 201, reply.text
    return reply.json()


async def reached(http: httpx.AsyncClient, backfill: Any, condition: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(30):
        while not condition(backfill):
            await asyncio.sleep(0.02)
            backfill = (await http.get(f"/v1/backfills/{backfill['id']}")).json()
    return backfill


async def ended(http: httpx.AsyncClient, backfill: Any) -> Any:
    return await reached(http, backfill, lambda found: found["status"] in ENDED)


async def change(http: httpx.AsyncClient, backfill: Any, what: str) -> Any:
    reply = await http.post(f"/v1/backfills/{backfill['id']}/{what}")
    assert reply.status_code == 200, reply.text
    return reply.json()


async def content(http: httpx.AsyncClient, file_id: str | None) -> bytes:
    if file_id is None:
        return b""
    reply = await http.get(f"/v1/files/{file_id}/content")
    assert reply.status_code == 200, reply.text
    return reply.content


async def rows_of(http: httpx.AsyncClient, file_id: str | None) -> list[Any]:
    return [json.loads(line) for line in (await content(http, file_id)).splitlines()]


async def upload(http: httpx.AsyncClient, name: str, data: bytes) -> str:
    reply = await http.post(
        "/v1/files",
        params={"purpose": "backfill", "filename": name},
        content=data,
        headers={"content-type": "application/octet-stream"},
    )
    assert reply.status_code == 200, reply.text
    return str(reply.json()["id"])
