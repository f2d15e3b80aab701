"""The Prefer header (RFC 7240): how long a caller will wait for a result."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tasks.errors import InvalidRequest

_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_PREFERENCE = re.compile(rf"(?:{_QUOTED}|[^,\"])++")
_HEAD = re.compile(rf"\s*([^\s=;\"]+)\s*(?:=\s*({_QUOTED}|[^;]*))?")


def wait_of(lines: Sequence[str], longest: float) -> float:
    """Seconds to wait for the result, at most `longest`; 0 to answer at once. `lines` are the header's, as they came.

    `respond-async` beside `wait=N` means the same as `wait=N` alone: answer 202 when N seconds were not enough. Other
    preferences are passed over, and of one given twice the first counts, as the RFC asks. Raises InvalidRequest on a
    wait that is no number of seconds.
    """
    for name, value in _preferences(", ".join(lines)):
        if name == "wait":
            return seconds(value, longest, "Prefer")
    return 0.0


def _preferences(header: str) -> Iterator[tuple[str, str]]:
    """Name and value of each preference, without its parameters."""
    for preference in _PREFERENCE.finditer(header):
        if head := _HEAD.match(preference[0]):
            yield head[1].lower(), _plain((head[2] or "").strip())


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] == '"' == value[-1:] and len(value) > 1 else value


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
