"""The Prefer header (RFC 7240): how long a caller will wait for a result."""

from __future__ import annotations

import re

from tasks.errors import InvalidRequest

_WAIT = re.compile(r"wait\s*=\s*\"?([^\s\",;]*)\"?", re.IGNORECASE)


def wait_of(prefer: str | None, longest: float) -> float:
    """Seconds to wait for the result, at most `longest`; 0 to answer at once.

    `respond-async` beside `wait=N` means the same as `wait=N` alone: answer 202 when N seconds were not enough. Other
    preferences are passed over, as the RFC asks. Raises InvalidRequest on a wait that is no number of seconds.
    """
    if not prefer:
        return 0.0
    match = _WAIT.search(prefer)
    if match is None:
        return 0.0
    return seconds(match[1], longest, "Prefer")


def seconds(text: str, longest: float, param: str) -> float:
    """A number of seconds as a caller writes it, cut to `longest`. Raises InvalidRequest."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not value >= 0:
        raise InvalidRequest(f"{param!r}: a wait is a number of seconds, 0 or more, as in wait=30.", param=param)
    return min(value, longest)


def applied(wait: float) -> str:
    """The value of Preference-Applied."""
    return f"wait={wait:g}" if wait > 0 else "respond-async"
