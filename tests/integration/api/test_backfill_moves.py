"""Backfills that are paused, cancelled, resumed, repeated and handed on, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.integration.api.backfilling import (
    CHUNK,
    ENCODE,
    PARSE,
    Consumer,
    Start,
    catalog,
    change,
    ended,
    folder,
    http,
    made,
    reached,
    rows_of,
    settings,
    start,
    texts,
)

__all__ = ["catalog", "folder", "http", "settings", "start"]


async def test_a_feeder_that_stops_hands_on_and_nothing_is_done_twice(
    http: httpx.AsyncClient, start: Start, idle_consumer: Consumer, folder: Path
) -> None:
    names = texts(folder, 30)
    backfill = await made(http, [PARSE, CHUNK, ENCODE], {"path": str(folder)})
    first = await start("one")
    await asyncio.to_thread(idle_consumer.wait_taken, 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await start("two")
    idle_consumer.release()

    backfill = await ended(http, backfill)

    assert (backfill["status"], backfill["counts"]["completed"]) == ("completed", 30), backfill
    assert [row["document"] for row in await rows_of(http, backfill["output_file_id"])] == names
    assert len({job.id for job in idle_consumer.taken}) == len(idle_consumer.taken) == 60


async def test_a_paused_backfill_stands_still_until_it_is_resumed(
    http: httpx.AsyncClient, start: Start, idle_consumer: Consumer, folder: Path
) -> None:
    texts(folder, 30)
    backfill = await made(http, [ENCODE], {"path": str(folder)})
    await start("one")
    await asyncio.to_thread(idle_consumer.wait_taken, 1)
    paused = await change(http, backfill, "pause")
    assert paused["status"] == (await change(http, backfill, "pause"))["status"] == "paused"
    # Told with the lease, twice a second: after that nothing more is begun.
    await asyncio.sleep(1.2)
    idle_consumer.release()
    await reached(http, backfill, lambda found: found["counts"]["completed"] == 8)
    await asyncio.sleep(1.2)
    backfill = await reached(http, backfill, lambda found: found["counts"]["total"] == 30)
    assert (backfill["status"], backfill["counts"]["completed"], len(idle_consumer.taken)) == ("paused", 8, 8)

    backfill = await ended(http, await change(http, backfill, "resume"))

    assert (backfill["status"], backfill["counts"]["completed"], len(idle_consumer.taken)) == ("completed", 30, 30)


async def test_a_cancelled_backfill_keeps_what_is_done_and_can_be_resumed(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, folder: Path
) -> None:
    texts(folder, 20)

    def edit(_: int, row: dict[str, Any]) -> dict[str, Any]:
        if len(consumer.taken) >= 10:
            consumer.hold()
        return row

    consumer.edit = edit
    backfill = await made(http, [ENCODE], {"path": str(folder)})
    await start("one")
    await reached(http, backfill, lambda found: found["counts"]["completed"] >= 5)
    await asyncio.to_thread(consumer.wait_taken, 11)
    assert (await change(http, backfill, "cancel"))["status"] == "cancelling"

    backfill = await ended(http, backfill)

    done = backfill["counts"]["completed"]
    assert backfill["status"] == "cancelled"
    assert 5 <= done < 20
    assert len(await rows_of(http, backfill["output_file_id"])) == done
    consumer.edit = None
    consumer.release()
    backfill = await ended(http, await change(http, backfill, "resume"))
    assert (backfill["status"], backfill["counts"]["completed"]) == ("completed", 20)
    assert len({row["document"] for row in await rows_of(http, backfill["output_file_id"])}) == 20


async def test_a_repeated_request_gets_the_same_backfill(http: httpx.AsyncClient, folder: Path) -> None:
    body = {"source": {"path": str(folder)}, "steps": [ENCODE]}
    key = {"Idempotency-Key": "once"}
    first = await http.post("/v1/backfills", json=body, headers=key)
    second = await http.post("/v1/backfills", json=body, headers=key)
    third = await http.post("/v1/backfills", json={**body, "name": "other"}, headers=key)

    assert (first.status_code, second.status_code, third.status_code) == (201, 200, 409)
    assert first.json()["id"] == second.json()["id"]
    assert first.headers["location"] == f"/v1/backfills/{first.json()['id']}"


REFUSED: Sequence[tuple[dict[str, Any], int, str, str]] = [
    ({"steps": []}, 422, "invalid_request", "steps"),
    ({"steps": [{"step": "embed", "model": "org/plain"}]}, 422, "invalid_request", "steps[0].step"),
    ({"steps": [{"step": "encode", "model": "org/plian"}]}, 404, "model_not_found", "steps[0].model"),
    ({"steps": [{"step": "encode"}]}, 422, "invalid_request", "steps[0].model"),
    ({"steps": [{"step": "score", "model": "org/plain"}]}, 422, "invalid_request", "steps[0].query"),
    ({"steps": [{"step": "extract", "model": "org/plain"}]}, 422, "unsupported_verb", "steps[0].step"),
    (
        {"steps": [PARSE, {**ENCODE, "options": {"normalise": 1}}]},
        422,
        "invalid_option",
        "steps[1].options.normalise",
    ),
    ({"steps": [PARSE, {"step": "chunk", "options": {"sice": 1}}]}, 422, "invalid_option", "steps[1].options.sice"),
    (
        {"steps": [{"step": "chunk", "options": {"size": 9999}}, ENCODE]},
        422,
        "invalid_option",
        "steps[0].options.size",
    ),
    ({"steps": [ENCODE, CHUNK]}, 422, "invalid_request", "steps[1]"),
    ({"steps": [CHUNK, PARSE]}, 422, "invalid_request", "steps[1]"),
    ({"outptu": {}}, 422, "invalid_request", "outptu"),
    ({"output": {"format": "csv"}}, 422, "invalid_request", "output.format"),
    ({"source": {}}, 422, "invalid_request", "source"),
    ({"source": {"path": "/etc"}}, 422, "source_refused", "source.path"),
    ({"source": {"manifest": "file-0"}}, 404, "file_not_found", "source.manifest"),
]


async def test_what_cannot_run_is_refused_by_the_field(http: httpx.AsyncClient, folder: Path) -> None:
    for changes, status, code, param in REFUSED:
        body = {"source": {"path": str(folder)}, "steps": [ENCODE], **changes}
        reply = await http.post("/v1/backfills", json=body)

        assert reply.status_code == status, (changes, reply.text)
        error = reply.json()["error"]
        assert (error["code"], error["param"]) == (code, param), error
        assert str(folder) not in error["message"]
    assert (await http.get("/v1/backfills")).json()["data"] == []


async def test_a_backfill_of_another_tenant_is_not_there(http: httpx.AsyncClient) -> None:
    for method, path in [("GET", ""), ("GET", "/documents"), *(("POST", f"/{one}") for one in ("pause", "resume"))]:
        reply = await http.request(method, f"/v1/backfills/backfill_{'0' * 32}{path}")
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "backfill_not_found")
