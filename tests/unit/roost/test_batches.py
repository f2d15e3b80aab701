from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from roost.batches import Batches, Files, lines
from roost.errors import ConnectionFailed
from roost.steps import Patience
from roost.transport import address, built, options_of
from roost.wire import Request
from tests.unit.roost.scripted import Server, broken, reply

PATIENT = Patience.of(60.0)
Object = dict[str, Any]
Objects = list[dict[str, Any]]


def batches(server: Server) -> Batches[Object, Objects]:
    return Batches(server.run, PATIENT)


def files(server: Server) -> Files[Object, Objects]:
    return Files(server.run, PATIENT)


def test_a_file_goes_up_under_its_own_name() -> None:
    server = Server(reply({"id": "file-1"}))
    assert files(server).upload(Path("in/requests.jsonl"))["id"] == "file-1"
    (request,) = server.requests
    assert request.params == {"purpose": "batch", "filename": "requests.jsonl"}


async def test_a_file_is_sent_piece_by_piece_with_its_length(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(content := b"x" * (2**20 + 5))
    where = address("http://h", None, 5.0, {})
    request = Request("POST", "/v1/files", body=tmp_path / "in")
    with httpx.Client(**options_of(where, 1)) as client:
        sent = built(client, request, where)
        assert (sent.headers["content-length"], sent.headers.get("transfer-encoding")) == (str(len(content)), None)
        assert [len(piece) for piece in sent.stream] == [2**20, 5]  # type: ignore[union-attr] # it is a synchronous one
    async with httpx.AsyncClient(**options_of(where, 1)) as other:
        sent = built(other, request, where)
        assert await sent.aread() == content


def test_a_batch_whose_answer_is_lost_is_not_created_twice() -> None:
    server = Server(broken())
    with pytest.raises(ConnectionFailed, match="may have been taken in"):
        batches(server).create("file-1", "/v1/embeddings", metadata={"a": "b"})
    (request,) = server.requests
    assert isinstance(request.body, bytes)
    assert json.loads(request.body) == {
        "input_file_id": "file-1",
        "endpoint": "/v1/embeddings",
        "completion_window": "24h",
        "metadata": {"a": "b"},
    }


def test_waiting_ends_with_the_batch_or_the_time() -> None:
    found = batches(Server(*(reply({"status": one}) for one in ("validating", "cancelling", "cancelled")))).wait("b")
    assert found["status"] == "cancelled"
    late = Server(reply({"status": "in_progress"}, at=1.0), reply({"status": "in_progress"}, at=3.0))
    assert batches(late).wait("b", timeout=2.0)["status"] == "in_progress"


def test_lists_go_on_over_pages_and_end_where_they_are_to() -> None:
    def page(*ids: str, more: bool) -> Any:
        return reply({"data": [{"id": id_} for id_ in ids], "last_id": ids[-1], "has_more": more})

    server = Server(page("a", "b", more=True), page("c", more=False))
    assert [one["id"] for one in files(server).list(purpose="batch")] == ["a", "b", "c"]
    assert [request.params.get("after") for request in server.requests] == [None, "b"]
    assert len(batches(Server(page("a", "b", more=True))).list(most=2)) == 2


def test_lines_are_put_together_from_pieces_and_over_a_connection_that_broke() -> None:
    content = b'{"n": 1}\n\n{"n": 2}\n{"n": 3}'
    server = Server(
        reply({"bytes": len(content)}),
        reply(),
        content[:4],
        content[4:12],
        broken(),
        reply(),
        content[:20],
        content[20:],
    )
    server.run(lines("file-1", PATIENT))
    assert [line["n"] for line in server.given] == [1, 2, 3]
