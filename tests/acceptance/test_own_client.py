"""Our own Python client against a running service: what it gives, and what it outlives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from roost import (
    AsyncClient,
    Client,
    Conflict,
    ConnectionFailed,
    Item,
    JobFailed,
    NotFound,
    Progress,
    RequestRefused,
    StillRunning,
)
from tests.acceptance.conftest import Running
from tests.acceptance.fakes import fake, timed, writer
from tests.acceptance.until import until

pytestmark = pytest.mark.slow

THINKER = {
    "family": "fake",
    "tasks": {"encode": {"dims": 16}, "score": {}, "extract": {"kinds": ["entities"]}},
    "parameters": 0,
    "max_length": 512,
}


@pytest.fixture(scope="module")
def running(start_stack: Callable[..., Running]) -> Running:
    return start_stack(
        models={
            "acme/thinker": THINKER,
            "acme/quick": fake(),
            "acme/slow": timed(3000.0),
            "acme/cold": fake(load_seconds=2.0),
            "acme/writer": writer(max_new_tokens=12, step_seconds=0.05),
            "acme/reader": fake() | {"inputs": ["document"]},
        }
    )


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with Client(running.url, patience_s=30.0) as client:
        yield client


def test_every_verb_gives_its_values(client: Client, tmp_path: Path) -> None:
    assert client.encode("acme/thinker", ["a text", "another"]).dense.shape == (2, 16)
    scores = client.score("acme/thinker", "a query", ["one", "two", "three"], top_n=2).scores
    assert scores is not None
    assert [found["rank"] for found in scores] == [0, 1]
    (item,) = client.extract("acme/thinker", "Anna met Bert", labels=["name"])
    assert [found["text"] for found in item.entities] == ["Anna", "Bert"]
    (tmp_path / "paper.bin").write_bytes(b"a page")
    read = client.encode("acme/reader", [tmp_path / "paper.bin", {"document": b"a page"}, {"document": b"another"}])
    assert np.array_equal(read[0].dense, read[1].dense)
    assert not np.array_equal(read[1].dense, read[2].dense)
    assert len(client.generate("acme/writer", ["one two", "three"], max_tokens=3).texts[0].split()) == 3


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "binary", "ubinary"])
def test_every_dtype_means_the_same_vectors(client: Client, dtype: str) -> None:
    whole = client.encode("acme/thinker", ["a text", "another"]).dense
    found = client.encode("acme/thinker", ["a text", "another"], output_dtype=dtype)
    assert found.bits.tolist() == (whole > 0).tolist()
    if not dtype.endswith("binary"):
        assert np.abs(found.floats - whole).max() < 0.01
    assert found.dense.shape == (2, 2 if dtype.endswith("binary") else 16)


def test_a_bad_item_is_seen_and_its_neighbours_are_there(client: Client) -> None:
    found = client.encode("acme/quick", ["good", {"id": "b", "text": ""}, "fine"])
    assert [(item.index, item.id) for item in found.failed] == [(1, "b")]
    assert found[2].dense.shape == (8,)
    with pytest.raises(JobFailed) as caught:
        client.encode("acme/quick", [""])
    assert (caught.value.code, len(caught.value.items)) == ("empty_text", 1)


def test_a_refusal_names_the_field_and_the_nearest_name(client: Client) -> None:
    with pytest.raises(RequestRefused, match="did you mean 'normalize'") as caught:
        client.encode("acme/quick", ["a"], normalise=True)
    assert (caught.value.code, caught.value.param, caught.value.status) == ("invalid_option", "options.normalise", 422)
    with pytest.raises(NotFound, match="acme/quick") as missing:
        client.encode("acme/quik", ["a"])
    assert missing.value.code == "model_not_found"
    with pytest.raises(NotFound):
        client.job("0199c0de-0000-7000-8000-000000000000")


def test_a_cold_model_is_waited_for_and_a_wait_may_end_before_it(client: Client) -> None:
    with pytest.raises(StillRunning) as caught:
        client.encode("acme/cold", ["a"], timeout=0.2)
    assert caught.value.job_id is not None
    assert client.job(caught.value.job_id).result().dense.shape == (1, 8)


def test_a_job_is_submitted_waited_for_followed_and_read(client: Client) -> None:
    job = client.submit("encode", "acme/quick", ["a"] * 3, tags=["mine"], priority=7)
    assert [event.name for event in job.events()][-1] == "succeeded"
    assert job.status == "succeeded"
    assert job.wait().timings is not None
    assert job.result().dense.shape == (3, 8)
    assert job.info.moment("finished_at") is not None
    assert [found.id for found in client.jobs(tag="mine")] == [job.id]
    with pytest.raises(Conflict, match="already"):
        job.cancel()


def test_a_key_leads_to_one_job(client: Client) -> None:
    first = client.submit("encode", "acme/quick", ["a"], key="one-job")
    assert client.submit("encode", "acme/quick", ["a"], key="one-job").id == first.id
    with pytest.raises(Conflict):
        client.submit("encode", "acme/quick", ["b"], key="one-job")


def test_a_job_is_cancelled_and_tried_again(client: Client) -> None:
    job = client.submit("encode", "acme/slow", ["a"])
    assert job.cancel().status == "cancelled"
    with pytest.raises(JobFailed, match="cancelled") as caught:
        job.result()
    assert caught.value.state == "cancelled"
    assert job.retry().status == "queued"
    assert job.result().dense.shape == (1, 8)


def test_a_job_is_deleted_once_it_has_ended(client: Client) -> None:
    job = client.submit("encode", "acme/slow", ["a"])
    with pytest.raises(Conflict):
        client.delete(job.id)
    job.cancel()
    assert client.delete(job.id) == {"id": job.id, "object": "job", "deleted": True}
    with pytest.raises(NotFound):
        client.job(job.id)


def test_lists_go_on_over_pages(client: Client) -> None:
    made = [client.submit("encode", "acme/quick", ["a"], tags=["paged"]).id for _ in range(105)]
    assert [job.id for job in client.jobs(tag="paged")] == made[::-1]
    assert len(list(client.jobs(tag="paged", most=3))) == 3


def test_models_and_workers_are_told(client: Client) -> None:
    assert {"acme/quick", "acme/slow"} <= {model["id"] for model in client.models()}
    assert client.model("acme/quick")["dims"] == 8
    assert [worker["device"] for worker in client.residency()] == ["cpu"]
    assert "roost_workers 1.0" in client.text("/metrics")


def test_a_text_comes_in_pieces_and_whoever_leaves_ends_it(client: Client) -> None:
    pieces = list(client.stream("acme/writer", "one two three"))
    assert len(pieces) > 3
    assert "".join(pieces) == client.generate("acme/writer", "one two three").texts[0]
    texts = client.stream("acme/writer", "a long one", max_tokens=2000, tags=["left"])
    assert next(texts)
    texts.close()  # type: ignore[attr-defined] # an iterator that is a generator
    (job,) = client.jobs(tag="left")
    assert job.wait(timeout=20).status == "cancelled"


def test_a_call_goes_on_when_the_server_is_killed_and_comes_back(running: Running, client: Client) -> None:
    with ThreadPoolExecutor(3) as pool:
        calls = [
            pool.submit(client.encode, "acme/slow", ["over", "a", "kill"], tags=["killed"]),
            pool.submit(client.submit("encode", "acme/slow", ["waits"]).result),
        ]
        followed = client.submit("encode", "acme/slow", ["followed"])
        events = pool.submit(lambda: list(followed.events()))
        until(lambda: list(client.jobs(tag="killed", most=1)))
        running.part("api").kill()
        running.part("api").start()
        assert [call.result(timeout=60).dense.shape for call in calls] == [(3, 8), (1, 8)]
        told = [event.name for event in events.result(timeout=60)]
    assert told[-1] == "succeeded"
    assert len(told) == len(set(told)), "a state was told twice"
    assert len(list(client.jobs(tag="killed"))) == 1, "the call was taken in twice"


def test_a_text_goes_on_when_the_server_is_killed_and_comes_back(running: Running, client: Client) -> None:
    whole = client.generate("acme/writer", "six seven", max_tokens=60).texts[0]
    pieces: list[str] = []
    for piece in client.stream("acme/writer", "six seven", max_tokens=60):
        pieces.append(piece)
        if len(pieces) == 3:
            running.part("api").kill()
            running.part("api").start()
    assert "".join(pieces) == whole


def test_a_server_that_stays_away_is_an_error_in_time(running: Running) -> None:
    with (
        Client("http://127.0.0.1:9", patience_s=0.5) as nobody,
        pytest.raises(ConnectionFailed, match=r"http://127\.0\.0\.1:9.*refused"),
    ):
        nobody.encode("acme/quick", ["a"])


def texts(count: int) -> Iterator[str]:
    return (f"text {n}" if n != 1234 else "" for n in range(count))


def test_a_backfill_goes_on_where_it_stopped_and_tells_of_the_bad_item(client: Client) -> None:
    """Five thousand items, stopped in the middle; the second run asks for nothing that was done."""
    told: list[Progress] = []
    first = list(islice(client.backfill("encode", "acme/quick", texts(5000), run="five", batch=100, in_flight=4), 2000))
    stopped_at = len(list(client.jobs(tag="run:five")))
    assert 20 <= stopped_at < 50
    again = list(
        client.backfill("encode", "acme/quick", texts(5000), run="five", batch=100, in_flight=4, progress=told.append)
    )
    assert [item.index for item in again] == list(range(5000))
    assert [item.index for item in again if not item.ok] == [1234]
    assert again[1234].error is not None
    assert (again[1234].error.code, again[1234].error.param) == ("empty_text", "items[1234]")
    assert [item.fields for item in first] == [item.fields for item in again[:2000]]
    assert (told[-1].done, told[-1].failed) == (5000, 1)
    jobs = list(client.jobs(tag="run:five"))
    assert len(jobs) == 50, "a part was made twice"
    assert {job.info.fields["lane"] for job in jobs} == {"bulk"}
    rest = list(client.backfill("encode", "acme/quick", texts(5000), run="five", batch=100, start=4950))
    assert [item.index for item in rest] == list(range(4950, 5000))
    assert np.array_equal(rest[0].dense, again[4950].dense)


def test_a_backfill_takes_its_input_as_there_is_room(client: Client) -> None:
    taken = 0

    def source() -> Iterator[str]:
        nonlocal taken
        for n in range(10**9):
            taken += 1
            yield f"text {n}"

    items = client.backfill("encode", "acme/quick", source(), batch=10, in_flight=2)
    assert [item.index for item in islice(items, 500)] == list(range(500))
    assert taken <= 500 + 10 * (2 * 2 + 1)
    items.close()  # type: ignore[attr-defined] # an iterator that is a generator


def test_other_items_under_a_run_s_name_are_refused(client: Client) -> None:
    list(client.backfill("encode", "acme/quick", ["a", "b"], run="mine"))
    with pytest.raises(Conflict):
        list(client.backfill("encode", "acme/quick", ["a", "c"], run="mine"))


def test_a_backfill_outlives_the_server(running: Running, client: Client) -> None:
    found: list[Item] = []
    for item in client.backfill("encode", "acme/quick", texts(3000), batch=50, in_flight=4, ordered=False):
        found.append(item)
        if len(found) == 500:
            running.part("api").kill()
            running.part("api").start()
    assert sorted(item.index for item in found) == list(range(3000))
    assert [item.index for item in found if not item.ok] == [1234]


def requests_of(*texts: str) -> bytes:
    body = {"method": "POST", "url": "/v1/embeddings"}
    lines = [{**body, "custom_id": text, "body": {"model": "acme/quick", "input": text}} for text in texts]
    return b"\n".join(json.dumps(line).encode() for line in lines)


async def test_a_batch_goes_by_file_there_and_back(running: Running, client: Client, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(requests_of("a", "b"))
    file = client.files.upload(tmp_path / "in.jsonl")
    made = client.batches.create(file["id"], "/v1/embeddings", metadata={"for": "tests"})
    batch = client.batches.wait(made["id"], timeout=60)
    assert (batch["status"], batch["metadata"]) == ("completed", {"for": "tests"})
    assert [line["custom_id"] for line in client.lines(batch["output_file_id"])] == ["a", "b"]
    assert made["id"] in {one["id"] for one in client.batches.list()}
    with pytest.raises(Conflict):
        client.batches.cancel(made["id"])
    async with AsyncClient(running.url) as other:
        again = await other.batches.create((await other.files.upload(tmp_path / "in.jsonl"))["id"], "/v1/embeddings")
        batch = await other.batches.wait(again["id"], timeout=60)
        assert [line["custom_id"] async for line in other.lines(batch["output_file_id"])] == ["a", "b"]
        assert (await other.files.delete(file["id"]))["deleted"]
    with pytest.raises(NotFound):
        client.files.get(file["id"])


async def test_the_asynchronous_client_does_all_of_it(running: Running) -> None:
    async with AsyncClient(running.url) as client:
        one, two = await asyncio.gather(client.encode("acme/quick", ["a"]), client.encode("acme/quick", ["b", "c"]))
        assert (one.dense.shape, two.dense.shape) == ((1, 8), (2, 8))
        job = await client.submit("encode", "acme/quick", ["a"], tags=["async"])
        assert [event.name async for event in job.events()][-1] == "succeeded"
        assert (await job.result()).dense.shape == (1, 8)
        assert [found.id async for found in client.jobs(tag="async")] == [job.id]
        assert "".join([text async for text in client.stream("acme/writer", "one two")])
        assert (await client.model("acme/quick"))["id"] == "acme/quick"
        async with aclosing(client.stream("acme/writer", "long", max_tokens=2000, tags=["left-async"])) as pieces:  # type: ignore[type-var] # an iterator that is a generator
            await anext(pieces)
        (left,) = [found async for found in client.jobs(tag="left-async")]
        assert (await left.wait(timeout=20)).status == "cancelled"
        with pytest.raises(StillRunning):
            await client.encode("acme/slow", ["a"], timeout=0.2)


async def test_an_asynchronous_backfill_reads_an_asynchronous_source(running: Running) -> None:
    async def source() -> AsyncIterator[str]:
        for text in texts(3000):
            yield text

    async with AsyncClient(running.url) as client:
        found = [item async for item in client.backfill("encode", "acme/quick", source(), batch=100)]
        assert [item.index for item in found] == list(range(3000))
        assert [item.index for item in found if not item.ok] == [1234]
        plain = [item async for item in client.backfill("encode", "acme/quick", ["a", "b"])]
        assert len(plain) == 2


async def test_a_call_that_is_cancelled_leaves_the_client_in_use(running: Running) -> None:
    async with AsyncClient(running.url) as client:
        task = asyncio.create_task(client.encode("acme/slow", ["a"]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.encode("acme/quick", ["a"])).dense.shape == (1, 8)
