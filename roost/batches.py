"""Files and batches, OpenAI's: many requests in a file, answered in another. `client.files` and `client.batches`.

Objects are those of docs/batches.md. What a file holds is read by `client.content`, and line by line by `client.lines`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from roost import asking, document_backfills, flows
from roost.steps import Give, Patience, Steps
from roost.wire import JSON, Request

ObjectT = TypeVar("ObjectT")
ListT = TypeVar("ListT")

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
"""The states that are final."""

FILES, BATCHES = "/v1/files", "/v1/batches"


class Files(Generic[ObjectT, ListT]):
    """The calls of `client.files`."""

    def __init__(self, run: Callable[[Steps[Any]], Any], patience: Patience) -> None:
        self._run = run
        self._patience = patience

    def upload(self, content: bytes | Path, filename: str | None = None, *, purpose: str = "batch") -> ObjectT:
        """Keep a file, from memory or from the disk, of which only pieces are in memory then.

        Raises TooLarge, RequestRefused or ConnectionFailed.
        """
        name = filename or (content.name if isinstance(content, Path) else "upload.jsonl")
        headers = {"Content-Type": "application/octet-stream", "Accept": JSON}
        request = Request("POST", FILES, {"purpose": purpose, "filename": name}, headers, content)
        found: ObjectT = self._run(flows.fetch(request, self._patience))
        return found

    def get(self, file_id: str) -> ObjectT:
        """What is known of a file. Raises NotFound."""
        found: ObjectT = self._run(flows.fetch(asking.get_json(_path(FILES, file_id)), self._patience))
        return found

    def list(self, *, purpose: str | None = None, most: int = 100) -> ListT:
        """The newest files, all or those of one purpose."""
        found: ListT = self._run(flows.paged(FILES, {"purpose": purpose}, most, 1000, self._patience))
        return found

    def delete(self, file_id: str) -> ObjectT:
        """Remove a file. Raises Conflict while a batch reads it, and NotFound."""
        request = Request("DELETE", _path(FILES, file_id), headers={"Accept": JSON})
        found: ObjectT = self._run(flows.fetch(request, self._patience))
        return found


class Batches(Generic[ObjectT, ListT]):
    """The calls of `client.batches`."""

    def __init__(self, run: Callable[[Steps[Any]], Any], patience: Patience) -> None:
        self._run = run
        self._patience = patience

    def create(
        self, input_file_id: str, endpoint: str, *, window: str = "24h", metadata: Mapping[str, str] | None = None
    ) -> ObjectT:
        """Have the lines of a file worked through, each a request to this endpoint, such as `/v1/embeddings`.

        It is sent once: after a ConnectionFailed look at `list` before you create it again. Raises RequestRefused.
        """
        body = {"input_file_id": input_file_id, "endpoint": endpoint, "completion_window": window}
        asked = json.dumps(body | ({} if metadata is None else {"metadata": dict(metadata)})).encode()
        request = Request("POST", BATCHES, headers={"Content-Type": JSON, "Accept": JSON}, body=asked, again=False)
        found: ObjectT = self._run(flows.fetch(request, self._patience))
        return found

    def get(self, batch_id: str) -> ObjectT:
        """A batch as it is now, with its counts. Raises NotFound."""
        found: ObjectT = self._run(flows.fetch(asking.get_json(_path(BATCHES, batch_id)), self._patience))
        return found

    def list(self, *, most: int = 20) -> ListT:
        """The newest batches."""
        found: ListT = self._run(flows.paged(BATCHES, {}, most, 100, self._patience))
        return found

    def cancel(self, batch_id: str) -> ObjectT:
        """Do no more lines; what is done is kept. Raises Conflict where it has ended otherwise."""
        request = Request("POST", f"{_path(BATCHES, batch_id)}/cancel", headers={"Accept": JSON})
        found: ObjectT = self._run(flows.fetch(request, self._patience))
        return found

    def wait(self, batch_id: str, timeout: float | None = None) -> ObjectT:
        """The batch once it has ended, well or badly; as it is after `timeout` seconds if that comes first."""
        found: ObjectT = self._run(flows.settled(_path(BATCHES, batch_id), ENDED, timeout, self._patience))
        return found


def lines(file_id: str, patience: Patience) -> Steps[None]:
    """Give each line of a file of JSON lines. Raises as `content`."""
    content, rest, answer = document_backfills.content(file_id, patience), b"", None
    while True:
        try:
            command = content.send(answer)
        except StopIteration:
            break
        if isinstance(command, Give):
            *whole, rest = (rest + command.value).split(b"\n")
            for line in whole:
                if line.strip():
                    yield Give(json.loads(line))
            answer = None
        else:
            answer = yield command
    if rest.strip():
        yield Give(json.loads(rest))


def _path(kind: str, id_: str) -> str:
    return f"{kind}/{quote(id_, safe='')}"
