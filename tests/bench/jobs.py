"""Requests of the native API as bytes, and loops that submit many jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import cycle
from uuid import UUID

from tests.bench.client import Address, Answer, Connection, Refused, request
from tests.bench.load import Call

FAKE = "roost/fake"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
WAIT_S = 60
JSON = "application/json"
MSGPACK = "application/msgpack"


def submission(model: str, texts: Sequence[str], wait_s: float = 0, accept: str = JSON) -> bytes:
    """`POST /v1/jobs`: with a wait it answers with the result, without one with the job's id at once."""
    headers = [("Accept", accept)]
    if wait_s:
        headers.append(("Prefer", f"wait={wait_s:g}"))
    body = {"verb": "encode", "model": model, "items": list(texts)}
    return request("POST", "/v1/jobs", body, headers)


def weightless(items: int = 1, wait_s: float = 0, accept: str = JSON, kinds: int = 64) -> Iterator[Call]:
    """An endless series of requests of `items` short texts, each text another one, over `kinds` prepared requests."""
    calls = [
        Call(submission(FAKE, [f"a short text, number {kind}-{item}" for item in range(items)], wait_s, accept), items)
        for kind in range(kinds)
    ]
    return cycle(calls)


async def post_all(address: Address, calls: Sequence[Call], clients: int) -> list[Answer]:
    """Submit every call once, `clients` at a time. Raises Refused on anything but 200 and 202."""
    left = iter(calls)
    answers: list[Answer] = []

    async def client() -> None:
        connection = await Connection.open(address)
        try:
            for call in left:
                answer = await connection.ask(call.data)
                if answer.status not in {200, 202}:
                    raise Refused(answer)
                answers.append(answer)
        finally:
            await connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(clients, len(calls))):
            group.create_task(client())
    return answers


def ids_of(answers: Sequence[Answer]) -> list[UUID]:
    """The job ids that the answers tell."""
    return [UUID(answer.json()["id"]) for answer in answers]
