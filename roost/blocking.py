"""Carries out the steps of calls over httpx, one after the other."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar, cast

import httpx

from roost.errors import RoostError
from roost.steps import Command, Give, Left, Pause, Read, Steps
from roost.transport import Address, Line, built, options_of, spread
from roost.wire import Broken, Reply, Request

T = TypeVar("T")


class Driver:
    """May be used by several threads at once, each with calls of its own."""

    def __init__(self, where: Address, connections: int) -> None:
        self._line = Line(where)
        self._http = httpx.Client(**options_of(where, connections))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def run(self, steps: Steps[T]) -> T:
        """Carry out a call that gives nothing on its way; what it returns."""
        giving = self.give(steps)
        while True:
            try:
                next(giving)
            except StopIteration as end:
                return cast("T", end.value)

    def give(self, steps: Steps[T]) -> Generator[Any, None, T]:
        """Carry out a call and pass on each value that it gives."""
        open_ = _Open(self._http, self._line)
        try:
            command = next(steps)
            while True:
                if isinstance(command, Give):
                    yield command.value
                    command = next(steps)
                else:
                    command = steps.send(open_.carry_out(command))
        except StopIteration as end:
            return cast("T", end.value)
        except (GeneratorExit, KeyboardInterrupt):
            self._leave(steps, open_)
            raise
        finally:
            open_.close()

    def _leave(self, steps: Steps[T], open_: _Open) -> None:
        """The caller is gone: the call may take its last step."""
        try:
            command = steps.throw(Left())
            open_.carry_out(command)
            steps.close()
        except (Left, StopIteration, RoostError):
            return


class _Open:
    """One call's stream, if it has one."""

    def __init__(self, http: httpx.Client, line: Line) -> None:
        self._http = http
        self._line = line
        self._stack = ExitStack()
        self._pieces: Iterator[bytes] = iter(())

    def close(self) -> None:
        self._stack.close()

    def carry_out(self, command: Command) -> Reply | Broken | bytes | None:
        match command:
            case Request():
                return self._send(command)
            case Read():
                return self._read()
            case Pause(seconds):
                time.sleep(spread(seconds))
        return None

    def _send(self, request: Request) -> Reply | Broken:
        self._stack.close()
        try:
            response = self._http.send(built(self._http, request, self._line.where), stream=True)
            self._stack.callback(response.close)
            if request.streamed and response.status_code == httpx.codes.OK:
                self._pieces = response.iter_bytes()
                return self._line.reply(response, b"")
            return self._line.reply(response, response.read())
        except httpx.TransportError as error:
            return self._line.broken(error)

    def _read(self) -> bytes | Broken:
        try:
            piece = next(self._pieces, b"")
        except httpx.TransportError as error:
            return self._line.broken(error)
        return piece or self._line.ended()
