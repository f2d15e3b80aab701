"""Asking the system's resolver for all addresses of a name, without holding up anybody else.

A resolver may take half a minute over a name whose servers are dead, and a caller chooses the name. So each lookup has
a thread of its own and not one of the few that the event loop shares out, as many as there may be at once; those who
ask for the same name meanwhile share one. The threads are daemons: a process that ends waits for none.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress

from tasks.webhooks.addresses import Address
from tasks.webhooks.guard import as_address

MOST_LOOKUPS = 256


class Resolver:
    """One for each event loop."""

    def __init__(self, most: int = MOST_LOOKUPS) -> None:
        self._room = asyncio.Semaphore(most)
        self._asked: dict[str, asyncio.Future[list[Address]]] = {}

    async def __call__(self, host: str) -> list[Address]:
        """All addresses of the name. Raises OSError when it has none or nobody knows."""
        while (asked := self._asked.get(host)) is None:
            await self._room.acquire()
            if host in self._asked:
                self._room.release()
            else:
                self._ask(host)
        return await asyncio.shield(asked)

    def _ask(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Address]] = loop.create_future()
        answer.add_done_callback(lambda _: self._asked.pop(host, None))
        self._asked[host] = answer

        def done(found: list[Address] | OSError) -> None:
            self._room.release()
            if answer.cancelled():
                return
            if isinstance(found, OSError):
                answer.set_exception(found)
                answer.exception()  # whoever asked may have left
            else:
                answer.set_result(found)

        def look() -> None:
            found = _look(host)
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(done, found)

        try:
            threading.Thread(target=look, name="resolve", daemon=True).start()
        except RuntimeError as error:  # there may be no more threads just now
            done(OSError(str(error)))


def _look(host: str) -> list[Address] | OSError:
    try:
        found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(as_address(str(sockaddr[0])) for *_, sockaddr in found))
    except OSError as error:
        return error
    except ValueError as error:
        return OSError(str(error))
