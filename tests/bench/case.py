"""What a case is: a name, how to open it against a running stack, and what one round of it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.client import Address
from tests.bench.figures import Reading
from tests.bench.load import Window
from tests.bench.rows import Rows
from tests.bench.usage import CLIENT, Meter, Spent


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things are measured. `seconds` is a window, `warmup` goes before it, `jobs` is a fixed count."""

    quick: bool
    seconds: float
    warmup: float
    jobs: int
    tries: int

    @classmethod
    def of(cls, *, quick: bool) -> Pace:
        """The short run or the full one."""
        if quick:
            return cls(quick=True, seconds=2.5, warmup=0.7, jobs=2000, tries=1)
        return cls(quick=False, seconds=8.0, warmup=2.0, jobs=5000, tries=3)


@dataclass(frozen=True, slots=True)
class Stack:
    """The running stack: where it answers, where its servers are, which process started it, and its settings as
    variables."""

    address: Address
    pid: int
    redis_url: str
    rows: Rows
    folder: Path
    database_url: str
    environment: Mapping[str, str]

    def meter(self, *others: int) -> Meter:
        """A meter over the stack's processes, the client, and other processes beside them."""
        return Meter(self.pid, *others)


@dataclass(slots=True)
class Found:
    """What one round of a case found: figures, CPU microseconds a job by part for each load, parts that failed."""

    readings: list[Reading] = field(default_factory=list)
    cpu_us: dict[str, Mapping[str, float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def add(self, *readings: Reading) -> None:
        """Add figures."""
        self.readings.extend(readings)

    def spent(self, load: str, spent: Spent, count: int) -> None:
        """Note what a load cost, and what the client itself and strangers took of the machine meanwhile."""
        self.cpu_us[load] = spent.per(count)
        self.add(
            Reading(f"{load}: client's own CPU", spent.share(CLIENT), "cores"),
            Reading(f"{load}: CPU taken by others", spent.others, "cores"),
        )


Measure = Callable[[], Awaitable[Found]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure. `opened` prepares what it needs beside the stack and gives the measurement of one round."""

    name: str
    title: str
    opened: Callable[[Stack, Pace], AbstractAsyncContextManager[Measure]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Study:
    """One thing to measure in this process, without a stack. `measure` finds one round, of the number that it gets."""

    name: str
    title: str
    measure: Callable[[Pace, int], Found]
    notes: tuple[str, ...] = ()
    wide: bool = False
    """Whether figures are called `subject: figure` and the report has a line for each subject."""


class Unreliable(RuntimeError):
    """The load did not run as it should, so its figures would mean nothing; the message says what happened."""


def checked(window: Window) -> Window:
    """The window, if nothing was refused and something was answered. Raises Unreliable."""
    if window.refused:
        raise Unreliable(f"unexpected answers {dict(window.refused)}, for example {window.sample!r}")
    if not window.answers:
        raise Unreliable(f"no answer in {window.seconds:.1f} s")
    return window
