"""A server that is a list: calls are carried out against answers that a test wrote down."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgpack

from roost.steps import Give, Left, Pause, Read, Steps
from roost.wire import Broken, Reply, Request

T = TypeVar("T")


def reply(body: object = None, status: int = 200, at: float = 0.0, **headers: str) -> Reply:
    """An answer in JSON."""
    told = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Reply(status, told, json.dumps(body).encode(), at)


def packed(body: object, status: int = 200, at: float = 0.0, **headers: str) -> Reply:
    """An answer in msgpack."""
    told = {"content-type": "application/msgpack", **{name.replace("_", "-"): v for name, v in headers.items()}}
    return Reply(status, told, bytes(msgpack.packb(body)), at)


def error(status: int, code: str = "some_code", at: float = 0.0, **more: Any) -> Reply:
    """An error in the service's envelope."""
    return reply({"error": {"code": code, "message": "Do something else.", **more}}, status, at)


def broken(at: float = 0.0, *, unsent: bool = False) -> Broken:
    """A connection that was lost."""
    return Broken("connection reset", at, unsent)


def job(status: str = "queued", **more: Any) -> dict[str, Any]:
    """A job as the server tells it."""
    base = {"id": "j1", "status": status, "verb": "encode", "model": "acme/owl", "items": 1, "items_failed": 0}
    return base | {"error": None} | more


class Server:
    """Carries out calls: `answers` are for requests and reads, in their order. What was asked is kept."""

    def __init__(self, *answers: Reply | Broken | bytes) -> None:
        self._answers: list[Reply | Broken | bytes] = list(answers)
        self.requests: list[Request] = []
        self.pauses: list[float] = []
        self.given: list[Any] = []

    def run(self, steps: Steps[T], *, leave_after: int | None = None) -> T | None:
        """What the call returns; `leave_after` so many values its caller is gone."""
        answer: Any = None
        try:
            while True:
                command = steps.send(answer)
                answer = self._carry_out(command)
                if leave_after is not None and len(self.given) == leave_after:
                    self._carry_out(steps.throw(Left()))
                    steps.close()
                    return None
        except StopIteration as end:
            assert not self._answers, "the call did not ask for all of it"
            found: T = end.value
            return found

    def _carry_out(self, command: object) -> Any:
        match command:
            case Give(value):
                self.given.append(value)
                return None
            case Pause(seconds):
                self.pauses.append(seconds)
                return None
            case Request():
                self.requests.append(command)
            case Read():
                pass
        return self._answers.pop(0)

    @property
    def sent(self) -> list[Mapping[str, Any]]:
        """The bodies that were sent."""
        return [msgpack.unpackb(request.body) for request in self.requests if request.body is not None]

    @property
    def paths(self) -> Sequence[str]:
        """Method and path of each request."""
        return [f"{request.method} {request.path}" for request in self.requests]
