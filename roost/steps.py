"""How a call is made of steps that someone else carries out: the one way of every call, with or without `await`.

A call is a generator. It yields what it wants done (a `Request`, a `Pause`, the next piece to `Read`), is sent what
came of it, and returns what the caller asked for. Between that it may `Give` values, one by one. So what to send, when
to try again and when to give up is written once; `blocking.py` and `awaiting.py` only carry it out.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from roost.errors import ConnectionFailed
from roost.wire import Broken, Reply, Request, told_error

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0

PATIENCE_S = 60.0
UNMET_PATIENCE_S = 5.0
"""For a server that a client has never heard of, unless its caller says how patient it is: a wrong address, mostly."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pause:
    """Let so many seconds pass; no less, and up to a quarter more, so that not all come back at once."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """The next piece of the streamed reply. Its end is a connection that broke: whole streams end by themselves."""


@dataclass(frozen=True, slots=True)
class Give:
    """A value for the caller."""

    value: Any


class Left(Exception):
    """Thrown into a call whose caller has left it; the call may take a last step, then ends."""


Command = Request | Pause | Read | Give
Steps = Generator[Command, Any, T]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call goes on without a useful answer: seconds from the first failure in a row.

    `unmet` is for a server to which no connection was ever made.
    """

    seconds: float
    unmet: float

    @classmethod
    def of(cls, asked: float | None) -> Patience:
        """What a caller asked for, in either case; None is a minute, and seconds for a server that never answered."""
        return cls(PATIENCE_S, UNMET_PATIENCE_S) if asked is None else cls(asked, asked)

    def after(self, outcome: Reply | Broken) -> float:
        """The seconds that hold after this outcome."""
        return self.unmet if isinstance(outcome, Broken) and outcome.unmet and outcome.unsent else self.seconds


def ask(request: Request, patience: Patience) -> Steps[Reply]:
    """Send a request, again where that is safe and may help. The reply may tell of an error.

    Raises ConnectionFailed when there is none in time.
    """
    since: float | None = None
    failures = 0
    while True:
        outcome: Reply | Broken = yield request
        since = outcome.at if since is None else since
        pause = pause_after(outcome, request, failures)
        if pause is None or outcome.at + pause - since > patience.after(outcome):
            if isinstance(outcome, Broken):
                raise ConnectionFailed(_unreached(request, outcome, outcome.at - since))
            return outcome
        failures += 1
        yield Pause(pause)


def pause_after(outcome: Reply | Broken, request: Request, failures: int) -> float | None:
    """Seconds after which to send a request again; None when it has its answer, or must not be sent twice."""
    backoff = backoff_s(failures)
    if isinstance(outcome, Broken):
        return backoff if request.again or outcome.unsent else None
    # Nothing was taken in of what a 429 answers. A 503, and a proxy's own 502 or 504, say nothing of that.
    busy = outcome.status == 429 or (
        request.again and (outcome.status == 503 or (outcome.status in {502, 504} and told_error(outcome) is None))
    )
    return max(backoff, outcome.retry_after_s or 0.0) if busy else None


def backoff_s(failures: int) -> float:
    """The pause after so many failures in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 10))


def _unreached(request: Request, outcome: Broken, seconds: float) -> str:
    long = f" for {seconds:.0f} s" if seconds >= 1 else ""
    again = "" if request.again or outcome.unsent else " It may have been taken in; it was not sent again."
    return f"No answer from {outcome.server}{long}: {outcome.reason}.{again}"
