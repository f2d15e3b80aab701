"""Feeders in this process over real Postgres and Valkey, with a consumer that ends jobs as a worker would."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.body import OFF_LOOP_BYTES
from api.compat import calls
from api.compat.batchable import ENDPOINTS
from api.compat.endpoints import Asked
from api.door import admit
from api.feeding import endings, part, run
from api.feeding.feeder import Feeder
from api.feeding.services import LARGE_AT_ONCE, Feeding, feeding
from api.feeding.tidying import Tidying
from catalog.loader import Catalog
from tasks import lines
from tasks.batches import OPEN, PREFIX, TAG, Batch, Status, line_job
from tasks.contents import FOLDER
from tasks.files import shown_id
from tasks.lines import Line, RawLine, Rules, read_line
from tasks.prepare import CALLER
from tasks.settings import Settings
from tasks.store import batch_leases as leases
from tasks.store import batch_parts, files
from tasks.store import batches as store
from tests.integration.api.given import batch_of

Consumer = Any
Start = Callable[[str], Awaitable["asyncio.Task[None]"]]


@pytest.fixture
def settings(database_url: str, broker_url: str, tmp_path: Path) -> Settings:
    return Settings(
        database_url=database_url,
        broker_url=broker_url,
        blobs=str(tmp_path),
        max_body_bytes=1 << 20,
        job_lease_s=2.0,
        batch_in_flight=300,
    )


@pytest.fixture
async def it(settings: Settings, catalog: Catalog) -> AsyncIterator[Feeding]:
    async with feeding(settings, catalog) as made:
        yield made


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


def embed(custom_id: int, model: str = "org/plain") -> dict[str, Any]:
    body = {"model": model, "input": f"text {custom_id}"}
    return {"custom_id": str(custom_id), "method": "POST", "url": "/v1/embeddings", "body": body}


async def new_batch(it: Feeding, lines: Sequence[Any], window_s: float = 3600.0) -> Batch:
    return await batch_of(it, b"".join(json.dumps(line).encode() + b"\n" for line in lines), window_s=window_s)


async def reached(it: Feeding, batch: Batch, condition: Callable[[Batch], bool]) -> Batch:
    async with asyncio.timeout(60):
        while not condition(batch):
            await asyncio.sleep(0.02)
            batch = await it.database.run(store.get, batch.id, CALLER)
    return batch


async def ended(it: Feeding, batch: Batch) -> Batch:
    return await reached(it, batch, lambda found: found.status not in OPEN)


async def lines_of(it: Feeding, id_: Any) -> list[dict[str, Any]]:
    if id_ is None:
        return []
    file = await it.database.run(files.get, id_, CALLER)
    data = b"".join(it.blobs.chunks(file.blob))
    assert len(data) == file.bytes
    return [json.loads(line) for line in data.splitlines()]


async def test_two_feeders_share_batches_and_no_line_is_lost_or_twice(
    it: Feeding, start: Start, consumer: Consumer, tmp_path: Path
) -> None:
    batches = [await new_batch(it, [embed(n) for n in range(200)]) for _ in range(4)]
    await start("one")
    await start("two")

    for made in batches:
        batch = await ended(it, made)
        assert (batch.status, batch.total, batch.completed, batch.failed) == (Status.COMPLETED, 200, 200, 0)
        assert [int(line["custom_id"]) for line in await lines_of(it, batch.output_file)] == list(range(200))
    assert len({job.id for job in consumer.taken}) == len(consumer.taken) == 800
    # What is left in the store are the files alone.
    assert [path.name for path in (tmp_path / "batches").rglob("*") if path.is_file()] == []


async def test_lines_with_large_inputs_and_results_go_by_the_blob_store_and_leave_nothing_in_it(
    it: Feeding, start: Start, consumer: Consumer
) -> None:
    large = "x" * 300_000
    consumer.edit = lambda index, row: {**row, "text": large}
    lines_ = [{**embed(n), "body": {"model": "org/plain", "input": large, "truncate": True}} for n in range(3)]

    await start("one")
    batch = await ended(it, await new_batch(it, [*lines_, embed(3)]))

    assert (batch.status, batch.completed) == (Status.COMPLETED, 4)
    assert [job.inputs_blob is not None for job in sorted(consumer.taken, key=lambda job: len(job.inputs))] == [
        False,
        True,
        True,
        True,
    ]
    assert len(it.blobs.keys(FOLDER)) == 3 + 4
    await Tidying(it).spend()
    assert it.blobs.keys(FOLDER) == []


async def test_a_feeder_that_stops_hands_its_batch_on(it: Feeding, start: Start, idle_consumer: Consumer) -> None:
    batch = await new_batch(it, [embed(n) for n in range(400)])
    first = await start("one")
    await reached(it, batch, lambda found: found.fed > 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    idle_consumer.release()

    await start("two")
    batch = await ended(it, batch)

    assert (batch.status, batch.completed) == (Status.COMPLETED, 400)
    assert [int(line["custom_id"]) for line in await lines_of(it, batch.output_file)] == list(range(400))


async def test_lines_in_flight_are_bounded(it: Feeding, start: Start, idle_consumer: Consumer) -> None:
    batch = await new_batch(it, [embed(n) for n in range(1000)])
    await start("one")
    await reached(it, batch, lambda found: found.fed == 2)

    def open_jobs(conn: Any) -> int:
        return int(conn.exec_driver_sql("SELECT count(*) FROM jobs").scalar_one())

    # Two parts of 128 lines fit into 300; the next look of the feeder at its lease is long past.
    batch = await reached(it, batch, lambda found: (datetime.now(UTC) - found.created_at).total_seconds() > 3)
    assert await it.database.run(open_jobs) == 256
    assert batch.fed == 2
    idle_consumer.release()
    assert (await ended(it, batch)).completed == 1000


async def test_what_is_not_done_when_the_window_closes_is_listed(
    it: Feeding, start: Start, idle_consumer: Consumer
) -> None:
    batch = await new_batch(it, [embed(n) for n in range(500)], window_s=2.5)
    await start("one")

    batch = await ended(it, batch)

    assert (batch.status, batch.total, batch.completed, batch.failed) == (Status.EXPIRED, 500, 0, 500)
    rest = await lines_of(it, batch.error_file)
    assert [int(line["custom_id"]) for line in rest] == list(range(500))
    assert {(line["response"], line["error"]["code"]) for line in rest} == {(None, "batch_expired")}
    assert batch.output_file is None


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs were looked at in each reading of rows."""
    reads: list[int] = []
    job_states = batch_parts.job_states

    def counted(conn: Any, ids: Sequence[Any]) -> Any:
        reads.append(len(ids))
        return job_states(conn, ids)

    monkeypatch.setattr(batch_parts, "job_states", counted)
    return reads


async def test_the_rows_of_a_part_are_read_once_when_all_its_jobs_were_heard_to_end(
    it: Feeding, start: Start, idle_consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "SLOW_S", 60.0)
    reads = _reads(monkeypatch)
    await start("one")
    batch = await new_batch(it, [embed(n) for n in range(200)])
    await reached(it, batch, lambda found: found.fed == 2)
    reads.clear()
    idle_consumer.release()

    batch = await ended(it, batch)

    assert (batch.status, batch.completed) == (Status.COMPLETED, 200)
    assert sorted(reads) == [72, 128]


async def test_the_rows_are_read_all_the_same_when_nothing_is_heard(
    it: Feeding, start: Start, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "SLOW_S", 0.1)
    monkeypatch.setattr(endings.Endings, "heard", lambda self, changes: None)
    batch = await new_batch(it, [embed(n) for n in range(10)])
    await start("one")

    assert (await ended(it, batch)).completed == 10


async def test_a_cancel_lists_what_had_begun_and_does_not_read_the_rest(
    it: Feeding, start: Start, idle_consumer: Consumer
) -> None:
    batch = await new_batch(it, [embed(n) for n in range(1000)])
    await start("one")
    batch = await reached(it, batch, lambda found: found.fed == 2)
    await it.database.run(store.cancel, batch.id, CALLER)

    batch = await ended(it, batch)

    # Two parts of 128 lines fit into 300.
    assert (batch.status, batch.total, batch.completed, batch.failed) == (Status.CANCELLED, 1000, 0, 256)
    begun = await lines_of(it, batch.error_file)
    assert [int(line["custom_id"]) for line in begun] == list(range(256))
    assert {(line["response"], line["error"]["code"]) for line in begun} == {(None, "batch_cancelled")}


async def test_a_cancel_before_anybody_looks_leaves_no_files(it: Feeding, start: Start) -> None:
    batch = await new_batch(it, [embed(1)])
    await it.database.run(store.cancel, batch.id, CALLER)
    await start("one")

    batch = await ended(it, batch)

    assert (batch.status, batch.output_file, batch.error_file) == (Status.CANCELLED, None, None)


async def test_a_batch_whose_input_is_gone_from_the_store_fails(it: Feeding, start: Start) -> None:
    batch = await new_batch(it, [embed(1)])
    file = await it.database.run(files.get, batch.input_file, CALLER)
    it.blobs.delete(file.blob)
    await start("one")

    batch = await ended(it, batch)

    assert batch.status is Status.FAILED
    assert batch.errors is not None
    assert batch.errors[0]["code"] == "input_missing"


def jobs_of(conn: Any, batch: Batch) -> int:
    of = {"tag": TAG + shown_id(PREFIX, batch.id)}
    return int(conn.exec_driver_sql("SELECT count(*) FROM jobs WHERE tags @> ARRAY[%(tag)s]", of).scalar_one())


async def test_a_batch_that_fails_before_its_lines_have_ended_leaves_no_jobs(
    it: Feeding, start: Start, idle_consumer: Consumer
) -> None:
    batch = await new_batch(it, [embed(n) for n in range(400)])
    await start("one")
    async with asyncio.timeout(60):
        while await it.database.run(jobs_of, batch) < 256:  # noqa: ASYNC110 - rows send no signal
            await asyncio.sleep(0.02)
    # Two parts of four are under way; when the first has ended, the next one finds no content.
    it.blobs.delete((await it.database.run(files.get, batch.input_file, CALLER)).blob)
    await it.database.run(batch_parts.cancel_jobs, [line_job(batch.id, line) for line in range(1, 129)])

    batch = await ended(it, batch)

    assert (batch.status, batch.errors and batch.errors[0]["code"]) == (Status.FAILED, "input_missing")
    assert await it.database.run(jobs_of, batch) == 0


async def test_items_that_fail_and_bodies_that_are_refused_keep_their_order(
    it: Feeding, start: Start, consumer: Consumer
) -> None:
    def edit(_: int, row: dict[str, Any]) -> dict[str, Any]:
        return {"error": {"code": "model_failed", "message": "It broke.", "retryable": False}}

    consumer.edit = edit
    batch = await new_batch(it, [embed(1), embed(2, "org/none"), embed(3)])
    await start("one")

    batch = await ended(it, batch)

    assert (batch.status, batch.failed) == (Status.FAILED, 3)
    errors = await lines_of(it, batch.error_file)
    assert [line["custom_id"] for line in errors] == ["1", "2", "3"]
    assert [line["response"]["status_code"] for line in errors] == [500, 404, 500]
    assert errors[0]["response"]["body"]["error"]["message"] == "It broke."


async def test_a_large_line_is_read_beside_the_loop_and_its_small_neighbours_on_it(
    it: Feeding, start: Start, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: dict[str, bool] = {}
    endpoint = ENDPOINTS["/v1/embeddings"]

    def to_job(body: Mapping[str, Any]) -> Asked:
        on_loop[body["input"]] = threading.current_thread() is threading.main_thread()
        return endpoint.to_job(body)

    monkeypatch.setattr(run, "ENDPOINTS", {"/v1/embeddings": replace(endpoint, to_job=to_job)})
    large = embed(3)
    large["body"]["user"] = "." * OFF_LOOP_BYTES
    batch = await new_batch(it, [embed(1), embed(2), large])
    await start("one")

    assert (await ended(it, batch)).total == 3
    assert on_loop == {"text 1": True, "text 2": True, "text 3": False}


async def test_of_large_lines_few_are_decoded_at_once_however_many_parts_they_are_in(
    it: Feeding, start: Start, idle_consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: set[str] = set()
    most = admitted = 0

    def decode(raw: RawLine, rules: Rules) -> Line:
        line = read_line(raw, rules)
        held.add(line.body["input"])
        return line

    async def admit_one(feeding: Any, raw: Any, **how: Any) -> Any:
        nonlocal most, admitted
        most, admitted = max(most, len(held)), admitted + 1
        job = await admit(feeding, raw, **how)
        held.remove(raw["items"][0])
        return job

    monkeypatch.setattr(part, "read_line", decode)
    monkeypatch.setattr(calls, "admit", admit_one)
    monkeypatch.setattr(lines, "PART_BYTES", 3 * OFF_LOOP_BYTES)
    requests = [embed(n) for n in range(12)]
    for one in requests:
        one["body"]["user"] = "." * OFF_LOOP_BYTES
    batch = await new_batch(it, requests)
    await start("one")
    batch = await reached(it, batch, lambda _: admitted == 12)
    idle_consumer.release()

    assert batch.fed == 6
    assert 0 < most <= LARGE_AT_ONCE
    batch = await ended(it, batch)
    assert (batch.status, batch.completed) == (Status.COMPLETED, 12)
    assert [int(line["custom_id"]) for line in await lines_of(it, batch.output_file)] == list(range(12))


async def test_counts_do_not_fall_when_another_feeder_goes_on(
    it: Feeding, start: Start, idle_consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await new_batch(it, [embed(1, "org/none"), *(embed(n) for n in range(2, 200))])
    first = await start("one")
    await reached(it, batch, lambda found: found.failed == 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    told: list[tuple[int, int]] = []
    tend = leases.tend

    def tended(conn: Any, id_: Any, feeder: str, lease_s: float, completed: int, failed: int) -> Status:
        told.append((completed, failed))
        return tend(conn, id_, feeder, lease_s, completed, failed)

    monkeypatch.setattr(leases, "tend", tended)
    await start("two")
    await reached(it, batch, lambda _: bool(told))
    idle_consumer.release()

    batch = await ended(it, batch)

    assert (batch.completed, batch.failed) == (198, 1)
    assert told[0] == (0, 1)
    assert [sum(counts) for counts in told] == sorted(sum(counts) for counts in told)
