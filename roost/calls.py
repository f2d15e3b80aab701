"""What `Client` and `AsyncClient` have in common: every call that has one answer.

Each call is made of steps here, and `_run` carries them out: what it gives is the answer itself in the one class and
something to await in the other. The type parameters say which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from roost import asking, flows
from roost.batches import Batches, Files
from roost.dead import DeadLetters
from roost.document_backfills import DocumentBackfills
from roost.job_info import JobInfo
from roost.steps import Patience, Steps
from roost.transport import Address, address, now
from roost.webhooks import Webhooks

ResultT = TypeVar("ResultT")
JobT = TypeVar("JobT")
InfoT = TypeVar("InfoT")
ObjectT = TypeVar("ObjectT")
ListT = TypeVar("ListT")
TextT = TypeVar("TextT")


class Calls(ABC, Generic[ResultT, JobT, ObjectT, ListT, TextT]):
    """The calls of a server.

    `url` is ROOST_URL if left out, or else http://127.0.0.1:8080; `api_key` is ROOST_API_KEY. `timeout_s` is for how
    long a server that should answer at once may be silent, `patience_s` for how long a call goes on when the server is
    away or busy: if left out a minute, and 5 s where no server has answered this client yet. With `keyed=False` calls
    that wait go without an idempotency key: the server need not store them before it runs them, drops them when the
    caller leaves, and they are not sent again when a connection breaks.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 30.0,
        patience_s: float | None = None,
        keyed: bool = True,
        connections: int = 100,
    ) -> None:
        self._patience = Patience.of(patience_s)
        self._keyed = keyed
        self._connect(address(url, api_key, timeout_s), connections)

    def encode(
        self, model: str, items: Any, *, timeout: float | None = None, key: str | None = None, **fields: Any
    ) -> ResultT:
        """Vectors of texts, images or documents. Raises as `call`."""
        return self.call("encode", model, items, timeout=timeout, key=key, **fields)

    def score(
        self, model: str, query: Any, items: Any, *, timeout: float | None = None, key: str | None = None, **fields: Any
    ) -> ResultT:
        """Items against a query; `scores` of the result is the ranking. Raises as `call`."""
        return self.call("score", model, items, timeout=timeout, key=key, query=query, **fields)

    def extract(
        self, model: str, items: Any, *, timeout: float | None = None, key: str | None = None, **fields: Any
    ) -> ResultT:
        """What a model finds in items: entities, fields, objects, documents, speech. Raises as `call`."""
        return self.call("extract", model, items, timeout=timeout, key=key, **fields)

    def generate(
        self, model: str, items: Any, *, timeout: float | None = None, key: str | None = None, **fields: Any
    ) -> ResultT:
        """A text for each prompt or conversation. Raises as `call`."""
        return self.call("generate", model, items, timeout=timeout, key=key, **fields)

    def call(
        self,
        verb: str,
        model: str,
        items: Any,
        *,
        timeout: float | None = None,
        key: str | None = None,
        **fields: Any,
    ) -> ResultT:
        """Submit a job and wait for its result, at most `timeout` seconds; a cold model is waited for, too.

        `fields` are those of a job and the options of the verb. Raises JobFailed if the job does not succeed,
        StillRunning after `timeout`, RequestRefused or ConnectionFailed.
        """
        job = asking.asked(verb, model, items, fields, key or (asking.new_key() if self._keyed else None))
        result: ResultT = self._run(flows.call(job, self._patience, now(), timeout))
        return result

    def submit(self, verb: str, model: str, items: Any, *, key: str | None = None, **fields: Any) -> JobT:
        """Submit a job and come back for it later. Without a `key` of yours one is made, for sending it again."""
        job = asking.asked(verb, model, items, fields, key or asking.new_key())
        return self._handle(flows.submit(job, self._patience))

    def job(self, job_id: str) -> JobT:
        """A job by its id. Raises NotFound."""
        return self._handle(flows.look(job_id, self._patience))

    def delete(self, job_id: str) -> ObjectT:
        """Remove a job with its inputs and its result. Raises Conflict while it has not ended, and NotFound."""
        found: ObjectT = self._run(flows.fetch(asking.delete_job(job_id), self._patience))
        return found

    def models(self) -> ListT:
        """What the server's catalog has, what it costs, and where it is loaded: the models of docs/api.md."""
        found: ListT = self._run(flows.listed("/v1/models", self._patience))
        return found

    def model(self, model: str) -> ObjectT:
        """One model. Raises NotFound with the nearest name."""
        return self.get(asking.model_path(model))

    def residency(self) -> ListT:
        """What is on which device, and why: the workers of docs/api.md."""
        found: ListT = self._run(flows.listed("/v1/residency", self._patience))
        return found

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> ObjectT:
        """Any other object that the server tells in JSON."""
        found: ObjectT = self._run(flows.fetch(asking.get_json(path, params), self._patience))
        return found

    def text(self, path: str) -> TextT:
        """What the server tells as plain text, such as /metrics."""
        found: TextT = self._run(flows.text(path, self._patience))
        return found

    @property
    def files(self) -> Files[ObjectT, ListT]:
        """Files of the server, for batches."""
        return Files(self._run, self._patience)

    @property
    def batches(self) -> Batches[ObjectT, ListT]:
        """Many requests in a file, answered in another."""
        return Batches(self._run, self._patience)

    @property
    def backfills(self) -> DocumentBackfills[ObjectT, ListT]:
        """Backfills of documents, which the server works through."""
        return DocumentBackfills(self._run, self._patience)

    @property
    def dead(self) -> DeadLetters[ObjectT, ListT]:
        """Failed jobs by their reasons, and trying them again."""
        return DeadLetters(self._run, self._patience)

    @property
    def webhooks(self) -> Webhooks[ObjectT, ListT]:
        """Endpoints that are told of events, and what was told to whom."""
        return Webhooks(self._run, self._patience)

    @abstractmethod
    def _connect(self, where: Address, connections: int) -> None:
        """Get ready to carry out steps."""

    @abstractmethod
    def _run(self, steps: Steps[Any]) -> Any:
        """Carry out a call: what it returns, or something to await that gives it."""

    @abstractmethod
    def _handle(self, steps: Steps[JobInfo]) -> JobT:
        """The same, with the job that the call returns in a caller's hand."""


class JobCalls(ABC, Generic[InfoT, ResultT]):
    """A job of a server. `info` is what was last known of it."""

    def __init__(self, info: JobInfo, patience: Patience) -> None:
        self.info = info
        self._patience = patience

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"

    @property
    def id(self) -> str:
        """By which anybody finds it."""
        return self.info.id

    @property
    def status(self) -> str:
        """As last known: queued, running, succeeded, failed, cancelled or expired."""
        return self.info.status

    def refresh(self) -> InfoT:
        """Ask how it stands now."""
        return self._learn(flows.look(self.id, self._patience))

    def wait(self, timeout: float | None = None) -> InfoT:
        """The job once it has ended, well or badly. Raises StillRunning after `timeout` seconds."""
        return self._learn(flows.wait(self.id, self._patience, now(), timeout, self.info))

    def result(self, timeout: float | None = None) -> ResultT:
        """Its result, once it has ended. Raises JobFailed if not well, StillRunning after `timeout` seconds."""
        found: ResultT = self._run(self._finished(timeout))
        return found

    def cancel(self) -> InfoT:
        """End it; no result of it will be written. Raises Conflict if it has ended otherwise."""
        return self._learn(flows.change(self.id, "cancel", self._patience))

    def retry(self) -> InfoT:
        """Queue it again after it failed, was cancelled or expired. Raises Conflict in any other state."""
        return self._learn(flows.change(self.id, "retry", self._patience))

    def _learn(self, steps: Steps[JobInfo]) -> InfoT:
        found: InfoT = self._run(self._learned(steps))
        return found

    def _learned(self, steps: Steps[JobInfo]) -> Steps[JobInfo]:
        self.info = yield from steps
        return self.info

    def _finished(self, timeout: float | None) -> Steps[Any]:
        info = yield from self._learned(flows.wait(self.id, self._patience, now(), timeout, self.info))
        return (yield from flows.result(self.id, self._patience, info))

    @abstractmethod
    def _run(self, steps: Steps[Any]) -> Any:
        """Carry out a call: what it returns, or something to await that gives it."""
