"""A real API on a real socket, with real Postgres and Valkey, and a consumer that ends its jobs as a worker would."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import msgpack
import numpy as np
import orjson
import pytest
import redis
import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.services import Services
from catalog.loader import Catalog
from catalog.options import EncodeOptions, parse_options
from catalog.schema import CostCoefficients, EncodeFacts, Profile, Spec, Tasks
from catalog.terms import Verb
from engine.errors import EngineError
from engine.outputs import finish_vectors
from tasks import keys
from tasks.blobs import Blobs
from tasks.child.committer import Committer
from tasks.child.endings import Ending
from tasks.child.shelf import Shelf
from tasks.child.wakes import Wakes
from tasks.contents import Contents
from tasks.db import Database
from tasks.errors import AllItemsFailed, as_data
from tasks.messages import Completion, Submission, unpack
from tasks.queues import queue_names
from tasks.results import pack_rows
from tasks.settings import Settings, plain_redis

DIMS = 8
TENANTS = ("acme", "other")
"""Those that tests make keys for, besides the default one."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def catalog() -> Catalog:
    """Two models without weights, whose texts are counted by the estimate."""
    encode = EncodeFacts(dims=DIMS, matryoshka=(2, 4), prompts={"query": "query: "})
    cost = CostCoefficients(base=1.0, per_token=0.01)
    return Catalog(
        [
            Spec(
                id="org/model",
                family="fake",
                tasks=Tasks(encode=encode),
                parameters=0,
                max_length=64,
                cost=cost,
                profiles={"small": Profile(run={"dimensions": 2})},
            ),
            Spec(id="org/plain", family="fake", tasks=Tasks(encode=EncodeFacts(dims=4)), parameters=0, max_length=64),
        ]
    )


@pytest.fixture
def settings(database_url: str, broker_url: str, tmp_path: Path) -> Settings:
    return Settings(
        database_url=database_url,
        broker_url=broker_url,
        blobs=str(tmp_path / "blobs"),
        max_body_bytes=1 << 20,
        max_items=64,
        pool_size=3,
    )


@dataclass
class Api:
    """One API process: its base URL, a client for it, and its parts."""

    url: str
    app: FastAPI
    server: uvicorn.Server
    http: httpx.AsyncClient

    @property
    def services(self) -> Services:
        found: Services = self.app.state.services
        return found

    async def submit(
        self, *items: Any, wait: float = 0, headers: dict[str, str] | None = None, **fields: Any
    ) -> httpx.Response:
        body = {"verb": "encode", "model": "org/model", "items": list(items) or ["a text"], **fields}
        prefer = {"Prefer": f"wait={wait}"} if wait else {}
        return await self.http.post("/v1/jobs", json=body, headers={**prefer, **(headers or {})})


Start = Callable[..., Awaitable[Api]]


@pytest.fixture
async def start_api(settings: Settings, catalog: Catalog) -> AsyncIterator[Start]:
    """Starts API processes that share everything but their memory; all are stopped at the end."""
    async with AsyncExitStack() as stack:

        async def start(**changes: Any) -> Api:
            return await stack.enter_async_context(_serving(settings.model_copy(update=changes), catalog))

        yield start


@pytest.fixture
async def api(start_api: Start) -> Api:
    return await start_api()


@asynccontextmanager
async def _serving(settings: Settings, catalog: Catalog) -> AsyncIterator[Api]:
    app = create_app(settings, catalog)
    # Of a socket that names its protocol asyncio sends at once what it is given; of others after 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, loop="none", http="httptools", log_level="warning", access_log=False, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        async with httpx.AsyncClient(base_url=url, timeout=30, limits=httpx.Limits(max_connections=None)) as http:
            yield Api(url, app, server, http)
    finally:
        server.should_exit = True
        with suppress(SystemExit):
            await task


def vector_of(text: str, options: EncodeOptions, dims: int) -> dict[str, Any]:
    """What the consumer gives for a text: the same for the same text, whatever is beside it."""
    seed = np.frombuffer(text.encode()[:8].ljust(8, b"."), dtype=np.uint8).astype(np.float32) - 60.0
    (vector,) = finish_vectors(np.resize(seed, (1, dims)), [options])
    if isinstance(vector, EngineError):
        raise vector
    return vector


@dataclass
class Consumer:
    """Takes messages and ends jobs by the worker's own way: the store's `finish`, then notices, then the ack.

    `hold` makes it keep what it takes until `release`; `edit` may change a row before it is stored.
    """

    settings: Settings
    catalog: Catalog
    edit: Callable[[int, dict[str, Any]], dict[str, Any]] | None = None
    taken: list[Submission] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.broker: redis.Redis = redis.Redis.from_url(plain_redis(self.settings.broker_url))
        self.database = Database(self.settings.database_url, 2)
        self.contents = Contents(Blobs(self.settings.blobs_url), self.settings.blob_bytes)
        self.shelf = Shelf(self.contents)
        self.committer = Committer(
            self.database, Wakes(redis.Redis.from_url(self.settings.redis_url)), self._acked, shelf=self.shelf
        )
        self._lists = {
            keys.messages(queue, model, tenant).encode(): queue
            for queue in queue_names()
            for model in ("", *self.catalog.keys)
            for tenant in ("", *TENANTS)
        }
        self._open = threading.Event()
        self._open.set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.committer.start()
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._open.set()
        self._thread.join(10)
        self.committer.close(10)
        self.shelf.close()
        self.broker.close()
        self.database.close()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def wait_taken(self, count: int) -> None:
        """Return once this many messages were taken."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.taken) >= count, 10)

    def _run(self) -> None:
        while not self._closed:
            try:
                found: Any = self.broker.brpop(list(self._lists), timeout=0.1)
                if found is not None:
                    self.broker.rpop(keys.tally(self._lists[found[0]]))
            except redis.RedisError:
                time.sleep(0.02)
                continue
            if found is None:
                continue
            job = self._read(found[1])
            with self.changed:
                self.taken.append(job)
                self.changed.notify_all()
            self._open.wait()
            if not self._closed:
                self.committer.put([Ending(str(job.id), self._end(job), 0.001)])

    def _read(self, message: bytes) -> Submission:
        body = orjson.loads(orjson.loads(message)["body"])
        job = unpack(base64.b64decode(body[0][0]))
        if job.inputs_blob is not None:
            return replace(job, inputs=self.contents.get(job.inputs_blob))
        if not job.inputs:
            raise AssertionError("a test's inputs travel in the message")
        return job

    def _end(self, job: Submission) -> Completion:
        rows: list[dict[str, Any]] = []
        for index, item in enumerate(msgpack.unpackb(job.inputs)):
            row: dict[str, Any] = {"id": item["id"]} if "id" in item else {}
            if index in job.faults:
                row["error"] = dict(job.faults[index])
            else:
                row |= self._found(job, item["text"]) | {"tokens": job.lengths[index]}
            rows.append(row if self.edit is None else self.edit(index, row))
        failed = sum("error" in row for row in rows)
        now = time.time()
        return Completion(
            submission=job,
            state="failed" if failed == len(rows) else "succeeded",
            result=pack_rows(rows),
            items_failed=failed,
            error=as_data(AllItemsFailed()) if failed == len(rows) else None,
            device_ms=1.0,
            started=now,
            finished=now,
            timings=dict.fromkeys(
                ["admit_ms", "queue_ms", "load_ms", "batch_wait_ms", "device_ms", "commit_ms", "total_ms"], 1.0
            ),
            usage={"items": job.items, "tokens": sum(job.lengths)},
            worker="test@consumer",
        )

    def _found(self, job: Submission, text: str) -> dict[str, Any]:
        """What a model finds in a text: a vector, or its pages as the parser without weights has them."""
        choice = self.catalog.find(job.model)
        if job.verb is Verb.EXTRACT:
            return {"data": {"text": text, "pages": [{"words": page.split()} for page in text.split("\f")]}}
        options = parse_options(choice.spec, Verb.ENCODE, choice.run, job.options)
        assert isinstance(options, EncodeOptions)
        assert choice.spec.tasks.encode is not None
        return {"dense": vector_of(text, options, choice.spec.tasks.encode.dims), "truncated": False}

    def _acked(self, report: Any) -> None:
        for key, *_ in report:
            self.broker.srem(keys.HELD, key)


@pytest.fixture
def consumer(settings: Settings, catalog: Catalog) -> Iterator[Consumer]:
    made = Consumer(settings, catalog)
    made.start()
    yield made
    made.close()


@pytest.fixture
def idle_consumer(settings: Settings, catalog: Catalog) -> Iterator[Consumer]:
    """A consumer that takes messages and ends no job until it is released."""
    made = Consumer(settings, catalog)
    made.hold()
    made.start()
    yield made
    made.close()


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    made = Database(settings.database_url, 2)
    yield made
    made.close()


@pytest.fixture
def broker(settings: Settings) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.redis_url) as client:
        yield client


Until = Callable[[Callable[[], Any]], Awaitable[None]]


@pytest.fixture
def until() -> Until:
    """Returns once a condition holds; what another process changes has no event to wait on."""

    async def wait(condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    return wait


@pytest.fixture
def messages(broker: redis.Redis) -> Callable[[], int]:
    """How many messages are in the queues."""
    return lambda: sum(int(broker.llen(name)) for queue in queue_names() for name in (queue, keys.tally(queue)))
