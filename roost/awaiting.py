"""Carries out the steps of calls over httpx and asyncio. The same as `blocking.py`, with `await`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, TypeVar, cast

import httpx

from roost.errors import RoostError
from roost.steps import Command, Give, Left, Pause, Read, Steps
from roost.transport import Address, Line, built, options_of, spread
from roost.wire import Broken, Reply, Request

T = TypeVar("T")


class AsyncDriver:
    """May be used by any number of tasks of one event loop."""

    def __init__(self, where: Address, connections: int) -> None:
        self._line = Line(where)
        self._http = httpx.AsyncClient(**options_of(where, connections))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def run(self, steps: Steps[T]) -> T:
        """Carry out a call that gives nothing on its way; what it returns."""
        ends: list[T] = []
        async for _ in self.give(steps, ends):
            pass
        return ends[0]

    async def give(self, steps: Steps[T], ends: list[T] | None = None) -> AsyncGenerator[Any]:
        """Carry out a call and pass on each value that it gives; what it returns goes to `ends`."""
        open_ = _Open(self._http, self._line)
        try:
            command = next(steps)
            while True:
                if isinstance(command, Give):
                    yield command.value
                    command = next(steps)
                else:
                    command = steps.send(await open_.carry_out(command))
        except StopIteration as end:
            if ends is not None:
                ends.append(cast("T", end.value))
        except (GeneratorExit, asyncio.CancelledError):
            await self._leave(steps, open_)
            raise
        finally:
            await open_.close()

    async def _leave(self, steps: Steps[T], open_: _Open) -> None:
        """The caller is gone: the call may take its last step."""
        try:
            command = steps.throw(Left())
            await open_.carry_out(command)
            steps.close()
        except (Left, StopIteration, RoostError):
            return


class _Open:
    """One call's stream, if it has one."""

    def __init__(self, http: httpx.AsyncClient, line: Line) -> None:
        self._http = http
        self._line = line
        self._stack = AsyncExitStack()
        self._pieces: AsyncIterator[bytes] | None = None

    async def close(self) -> None:
        await self._stack.aclose()

    async def carry_out(self, command: Command) -> Reply | Broken | bytes | None:
        match command:
            case Request():
                return await self._send(command)
            case Read():
                return await self._read()
            case Pause(seconds):
                await asyncio.sleep(spread(seconds))
        return None

    async def _send(self, request: Request) -> Reply | Broken:
        await self._stack.aclose()
        try:
            response = await self._http.send(built(self._http, request, self._line.where), stream=True)
            self._stack.push_async_callback(response.aclose)
            if request.streamed and response.status_code == httpx.codes.OK:
                self._pieces = response.aiter_bytes()
                return self._line.reply(response, b"")
            return self._line.reply(response, await response.aread())
        except httpx.TransportError as error:
            return self._line.broken(error)

    async def _read(self) -> bytes | Broken:
        try:
            piece = b"" if self._pieces is None else await anext(self._pieces, b"")
        except httpx.TransportError as error:
            return self._line.broken(error)
        return piece or self._line.ended()
