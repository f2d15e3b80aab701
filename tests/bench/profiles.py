"""Samples the Python processes of the stack with py-spy while a case runs, where py-spy is installed."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.usage import members

PARTS = ("api", "parent", "child")


class Profiler:
    """Writes one folded-stack file for each part: in how many samples a stack held the interpreter (the GIL)."""

    def __init__(self, pid: int, folder: Path, wanted: bool) -> None:
        self._pid = pid
        self._folder = folder
        self._tool = shutil.which("py-spy") if wanted else None
        self._running: list[asyncio.subprocess.Process] = []
        if wanted and self._tool is None:
            print("bench: py-spy is not installed, so there is no profile", file=sys.stderr)

    async def __aenter__(self) -> Self:
        if self._tool is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            for process, part in members(self._pid):
                if part in PARTS:
                    await self._sample(self._tool, process.pid, self._folder / f"profile-{part}-{process.pid}.txt")
        return self

    async def _sample(self, tool: str, pid: int, file: Path) -> None:
        self._running.append(
            await asyncio.create_subprocess_exec(
                *(tool, "record", "--pid", str(pid), "--output", str(file), "--format", "raw", "--rate", "250"),
                *("--duration", "unlimited", "--threads", "--gil"),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            await process.wait()
