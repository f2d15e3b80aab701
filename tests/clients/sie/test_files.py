"""Files and batches of the peer's client, sync and async: its raw form of an upload, and what comes of the lines."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from sie_sdk import SIEAsyncClient, SIEClient
from sie_sdk.client.errors import RequestError

MODEL = "fake/vectors"
ENDED = ("completed", "failed", "expired", "cancelled")
PATIENCE_S = 120.0


def line(custom_id: str, text: str) -> bytes:
    body = {"model": MODEL, "input": text}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body}).encode()


CONTENT = b"\n".join([line("a", "one text"), line("b", "another")])


def check(batch: Any, content: bytes) -> None:
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    found = [json.loads(one) for one in content.splitlines()]
    assert [(one["custom_id"], one["response"]["status_code"]) for one in found] == [("a", 200), ("b", 200)]
    assert all(one["response"]["body"]["data"][0]["embedding"] for one in found)


def test_files_come_back_and_are_listed_and_deleted(url: str, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(CONTENT)
    with SIEClient(url) as client:
        by_path, by_bytes = client.files.upload(path), client.files.create(file=CONTENT)
        assert (by_path["filename"], by_bytes["filename"]) == ("requests.jsonl", "upload.jsonl")
        assert (by_path["bytes"], by_path["purpose"], by_path["status"]) == (len(CONTENT), "batch", "processed")
        assert client.files.retrieve(by_path["id"]) == by_path
        assert client.files.content(by_path["id"]) == CONTENT
        page = client.files.list_page(limit=1, order="desc", purpose="batch")
        assert (page["data"], page["has_more"], page["last_id"]) == ([by_bytes], True, by_bytes["id"])
        assert client.files.list(after=page["last_id"], limit=1) == [by_path]
        for file in (by_path, by_bytes):
            assert client.files.delete(file["id"])["deleted"]
        with pytest.raises(RequestError, match="No such file"):
            client.files.content(by_path["id"])


def test_a_batch_runs_to_its_end(url: str) -> None:
    with SIEClient(url) as client:
        file = client.files.upload(CONTENT)
        batch = client.batches.create(input_file_id=file["id"], metadata={"for": "tests"})
        assert (batch["endpoint"], batch["metadata"]) == ("/v1/embeddings", {"for": "tests"})
        until = time.monotonic() + PATIENCE_S
        while batch["status"] not in ENDED and time.monotonic() < until:
            time.sleep(0.1)
            batch = client.batches.retrieve(batch["id"])
        check(batch, client.files.content(batch["output_file_id"]))
        assert batch["id"] in [one["id"] for one in client.batches.list(limit=100)]
        assert client.batches.list_page(limit=1)["object"] == "list"
        with pytest.raises(RequestError, match="cancelled"):
            client.batches.cancel(batch["id"])


async def test_the_async_client_does_the_same(url: str) -> None:
    async with SIEAsyncClient(url) as client:
        file = await client.files.upload(CONTENT)
        batch = await client.batches.create(input_file_id=file["id"])
        until = time.monotonic() + PATIENCE_S
        while batch["status"] not in ENDED and time.monotonic() < until:
            await asyncio.sleep(0.1)
            batch = await client.batches.retrieve(batch["id"])
        check(batch, await client.files.content(batch["output_file_id"]))


def test_what_is_no_file_or_batch_is_refused_by_the_field(url: str) -> None:
    with SIEClient(url) as client:
        with pytest.raises(RequestError, match="purpose"):
            client.files.upload(CONTENT, purpose="fine-tune")
        with pytest.raises(RequestError, match="No such file"):
            client.batches.create(input_file_id="file-none")
        with pytest.raises(RequestError, match="endpoint"):
            client.batches.create(input_file_id="file-none", endpoint="/v1/embedings")
