"""Processes beside the stack that a figure is compared with: a JSON-lines process, and a server on a port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from deploy.embedded.ports import free_port
from tests.bench.client import Address, Connection, request

START_S = 120.0


class PeerFailed(RuntimeError):
    """A process beside the stack ended or did not become ready; the message holds the end of its errors."""


class Peer:
    """A process that answers each JSON line on stdin with one on stdout, the first line unasked when it is ready."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.hello: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @classmethod
    async def start(
        cls, module: str, *arguments: str, environment: Mapping[str, str] | None = None, log: Path | None = None
    ) -> Peer:
        """Start it and wait until it is ready; its errors go to `log`. Raises PeerFailed with their end."""
        log = log or Path(os.devnull)
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                limit=2**26,
            )
        peer = cls(process, log)
        try:
            peer.hello = await asyncio.wait_for(peer._read(), START_S)
        except BaseException:
            await peer.stop()
            raise
        return peer

    async def ask(self, **body: Any) -> dict[str, Any]:
        """One request and its answer. Raises PeerFailed when the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(body) + b"\n")
        await self._process.stdin.drain()
        return await self._read()

    async def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            status = await self._process.wait()
            raise PeerFailed(f"{self._process.pid} ended with status {status}\n{_tail(self._log)}")
        answer: dict[str, Any] = orjson.loads(line)
        return answer

    async def stop(self, patience_s: float = 10.0) -> None:
        """Close its input and wait for its end; kill it when the patience is over."""
        await stop(self._process, patience_s)


class Server:
    """A server on a free port beside the stack."""

    def __init__(self, process: asyncio.subprocess.Process, address: Address, ready: str) -> None:
        self._process = process
        self._ready_path = ready
        self.address = address

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @classmethod
    async def start(cls, folder: Path) -> Server:
        """The hand-written server of a model in this folder. Raises PeerFailed."""
        address = Address("127.0.0.1", free_port())
        return await cls._started(address, "/ready", ("tests.bench.handwritten", str(folder), str(address.port)), {})

    @classmethod
    async def api(cls, environment: Mapping[str, str]) -> Server:
        """One more API process of a stack, with these settings. Raises PeerFailed."""
        address = Address("127.0.0.1", free_port())
        return await cls._started(
            address, "/readyz", ("deploy.serve", address.host, str(address.port), "1", "warning"), environment
        )

    @classmethod
    async def _started(
        cls, address: Address, ready: str, words: Sequence[str], environment: Mapping[str, str]
    ) -> Server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *words,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
        server = cls(process, address, ready)
        try:
            async with asyncio.timeout(START_S):
                await server._ready()
        except BaseException:
            await server.stop()
            raise
        return server

    async def _ready(self) -> None:
        while not await answers(self.address, self._ready_path):
            if self._process.returncode is not None:
                raise PeerFailed(f"the server beside the stack ended with status {self._process.returncode}")
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End it by its process id."""
        await stop(self._process)


def _tail(log: Path, limit: int = 4000) -> str:
    return log.read_bytes()[-limit:].decode(errors="replace") if log.is_file() else ""


async def answers(address: Address, path: str) -> bool:
    """Whether a GET of this path gives 200 now."""
    try:
        connection = await Connection.open(address)
    except OSError:
        return False
    try:
        return (await connection.ask(request("GET", path))).status == 200
    except OSError:
        return False
    finally:
        await connection.close()


async def stop(process: asyncio.subprocess.Process, patience_s: float = 10.0) -> None:
    """Ask a process to end, wait, and kill it when the patience is over."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            if process.stdin is not None:
                process.stdin.close()
            else:
                process.terminate()
        try:
            await asyncio.wait_for(process.wait(), patience_s)
        except TimeoutError:
            process.kill()
            await process.wait()
