"""Opening URLs of callers: the address that is checked is the address that is connected to.

A name is resolved here, once, and every address that it has is checked; then the connection goes to one of these very
addresses, so that a name which changes between a look and a use (DNS rebinding) gains nothing. `Host`, SNI and the
certificate stay those of the name. No proxy of the environment is used, no redirect is followed, no cookie is kept, and
the whole exchange, its name's resolution too, has one limit of time and one of bytes.

    opener = Opener(Guard(allowed, http=False))            # one for each process and event loop
    reply = await opener.post(url, body, headers, timeout_s=15.0, most_bytes=4096)
    file = await opener.fetch(url, timeout_s=20.0, most_bytes=2**25)
    await opener.close()

Both raise UrlRefused (by its text or by an address; trying again does not help) and UrlUnreachable (no connection, bad
certificate, too slow, no HTTP; `retryable` says whether it may help). `post` gives whatever status came, redirects too,
and cuts a longer reply off (`cut`); `fetch` takes a 200 alone, and raises LimitExceeded for a longer file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tasks.webhooks.addresses import Address
from tasks.webhooks.guard import Guard

Resolve = Callable[[str], Awaitable[list[Address]]]
"""All addresses of a name; none if it has none. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a receiver said. Names of headers are in lower case. `cut`: there was more of the body."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file, and what its server says it is (without parameters, in lower case; empty if it does not say)."""

    data: bytes = field(repr=False)
    media_type: str = ""


class Opener:
    """Opens URLs under a guard. `resolve` is for tests; without it the system's resolver is asked."""

    def __init__(self, guard: Guard, *, resolve: Resolve | None = None) -> None:
        self.guard = guard
        self._resolve = resolve

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float, most_bytes: int
    ) -> Reply:
        """Send the body and read at most `most_bytes` of the reply. Raises UrlRefused or UrlUnreachable."""
        raise NotImplementedError

    async def fetch(self, url: str, *, timeout_s: float, most_bytes: int, param: str = "url") -> Fetched:
        """The file at the URL. Raises UrlRefused, UrlUnreachable or LimitExceeded, which name `param`."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close what is open."""
