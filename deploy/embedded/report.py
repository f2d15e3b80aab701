"""`stack.json`: what runs in a data folder and where it listens, for people, `roost status` and tests. No secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from deploy.embedded import family

FILE = "stack.json"


class PieceReport(BaseModel):
    """One piece."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int
    started: str
    where: str
    log: Path


class Report(BaseModel):
    """A stack that was started; whether it still runs is a question for the lock."""

    model_config = ConfigDict(frozen=True)

    pid: int
    ready: bool
    data_dir: Path
    urls: Mapping[str, str]
    pieces: tuple[PieceReport, ...]

    def write(self) -> None:
        """Replace the file at once, so that a reader never sees half of it."""
        target = self.data_dir / FILE
        fresh = target.with_suffix(".new")
        fresh.write_text(self.model_dump_json(indent=2) + "\n")
        fresh.replace(target)


def read(data_dir: Path) -> Report | None:
    """The last report in a data folder; None when there is none that can be read."""
    try:
        return Report.model_validate_json((data_dir / FILE).read_bytes())
    except (OSError, ValueError):
        return None


def end_leftovers(report: Report, timeout_s: float = 20.0) -> list[str]:
    """Wait for what a killed stack left behind, and kill what does not end; the names of those found.

    The kernel has already told them to end. The databases take a moment, and must not meet their successors.
    """
    found = [piece for piece in report.pieces if piece.started and family.started_at(piece.pid) == piece.started]
    for piece in found:
        if piece.pid != os.getpid() and not family.gone(piece.pid, timeout_s):
            family.end_all([piece.pid])
    return [piece.name for piece in found]
