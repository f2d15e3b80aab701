"""Backfills of documents, which the server works through: many files through one verb or a chain of steps.

Not `Client.backfill`, which submits a caller's own items part by part and has the results back as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from roost import asking, flows
from roost.errors import ConnectionFailed
from roost.steps import Give, Patience, Pause, Read, Steps, ask, backoff_s
from roost.wire import JSON, MSGPACK, Broken, Request, failure, packed

ObjectT = TypeVar("ObjectT")
ListT = TypeVar("ListT")

ENDED = frozenset({"completed", "failed", "cancelled"})
"""The states in which nothing of a backfill is under way."""

PATH = "/v1/backfills"
_MOST_BREAKS = 8
"""So often in a row a download may break off without a byte more."""


class DocumentBackfills(Generic[ObjectT, ListT]):
    """The calls of `client.backfills`. Backfills are the objects of docs/backfills.md."""

    def __init__(self, run: Callable[[Steps[Any]], Any], patience: Patience) -> None:
        self._run = run
        self._patience = patience

    def create(
        self,
        source: Mapping[str, Any],
        steps: Sequence[Mapping[str, Any]],
        *,
        output: str = "jsonl",
        name: str | None = None,
        skip_unchanged: bool = True,
        key: str | None = None,
    ) -> ObjectT:
        """Have documents worked through. `source` is `{"path"}`, `{"manifest"}` or `{"files"}`; see docs/backfills.md.

        Raises RequestRefused, NotFound or ConnectionFailed.
        """
        body = {"source": source, "steps": list(steps), "output": {"format": output}, "skip_unchanged": skip_unchanged}
        body |= {} if name is None else {"name": name}
        headers = {"Content-Type": MSGPACK, "Accept": JSON, "Idempotency-Key": key or asking.new_key()}
        found: ObjectT = self._run(
            flows.fetch(Request("POST", PATH, headers=headers, body=packed(body)), self._patience)
        )
        return found

    def get(self, backfill_id: str) -> ObjectT:
        """A backfill as it is now. Raises NotFound."""
        found: ObjectT = self._run(flows.fetch(asking.get_json(_path(backfill_id)), self._patience))
        return found

    def list(self, *, name: str | None = None, most: int = 20) -> ListT:
        """The newest backfills, all or those of one name; at most 100."""
        params = {"name": name, "limit": most}
        found: ListT = self._run(_data(asking.get_json(PATH, params), self._patience))
        return found

    def documents(self, backfill_id: str, *, state: str | None = None) -> ListT:
        """Its documents, all or those of one state: `failed` tells why."""
        found: ListT = self._run(_documents(backfill_id, state, self._patience))
        return found

    def pause(self, backfill_id: str) -> ObjectT:
        """Begin no more documents. Raises Conflict where it has ended."""
        return self._change(backfill_id, "pause")

    def resume(self, backfill_id: str) -> ObjectT:
        """Go on; of one that has ended with what failed and what was not begun. Raises Conflict if that is nothing."""
        return self._change(backfill_id, "resume")

    def cancel(self, backfill_id: str) -> ObjectT:
        """End it; what is done is kept. Raises Conflict where it has ended otherwise."""
        return self._change(backfill_id, "cancel")

    def wait(self, backfill_id: str, timeout: float | None = None) -> ObjectT:
        """The backfill once it has ended, or is paused; as it is after `timeout` seconds if that comes first."""
        found: ObjectT = self._run(flows.settled(_path(backfill_id), ENDED | {"paused"}, timeout, self._patience))
        return found

    def _change(self, backfill_id: str, what: str) -> ObjectT:
        request = Request("POST", f"{_path(backfill_id)}/{what}", headers={"Accept": JSON})
        found: ObjectT = self._run(flows.fetch(request, self._patience))
        return found


def content(file_id: str, patience: Patience) -> Steps[None]:
    """Give the content of a file, piece by piece; it goes on after lost connections. Raises ConnectionFailed."""
    path = f"/v1/files/{quote(file_id, safe='')}"
    size = int((yield from flows.fetch(asking.get_json(path), patience))["bytes"])
    given = breaks = 0
    while given < size:
        reply = yield from ask(Request("GET", f"{path}/content", streamed=True), patience)
        if reply.status >= 400:
            raise failure(reply)
        before, passed = given, 0
        while passed < size:
            piece: bytes | Broken = yield Read()
            if isinstance(piece, Broken):
                breaks = 0 if given > before else breaks + 1
                if breaks > _MOST_BREAKS:
                    raise ConnectionFailed(f"The content of {file_id} breaks off again and again: {piece.reason}.")
                yield Pause(backoff_s(breaks))
                break
            fresh = piece[max(0, given - passed) :]
            passed += len(piece)
            if fresh:
                yield Give(fresh)
                given += len(fresh)


def _data(request: Request, patience: Patience) -> Steps[list[dict[str, Any]]]:
    return list((yield from flows.fetch(request, patience))["data"])


def _documents(backfill_id: str, state: str | None, patience: Patience) -> Steps[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    after, more = 0, True
    while more:
        params = {"state": state, "after": after, "limit": 1000}
        page = yield from flows.fetch(asking.get_json(f"{_path(backfill_id)}/documents", params), patience)
        found += page["data"]
        after, more = page["last_number"], page["has_more"]
    return found


def _path(backfill_id: str) -> str:
    return f"{PATH}/{quote(backfill_id, safe='')}"
