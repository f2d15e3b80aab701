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

import asyncio
import logging
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import httpcore
import httpx

from tasks.errors import LimitExceeded, TaskError, UrlRefused, UrlUnreachable
from tasks.sources import Fetched
from tasks.webhooks.addresses import Address
from tasks.webhooks.guard import Guard, Target
from tasks.webhooks.resolver import Resolver

# At the level debug it tells hosts of callers, and headers of replies.
logging.getLogger("httpcore").setLevel(logging.INFO)

Resolve = Callable[[str], Awaitable[list[Address]]]
"""All addresses of a name. Raises OSError when there are none."""

CONNECT_S = 5.0
"""One address that does not answer is given up after this, and the next one is tried."""

MOST_ADDRESSES = 4
READ_BYTES = 16 * 1024
HEAD_BYTES = 64 * 1024
"""More than this before a response begins is none."""

_PIECE = 2**20
_TURN = 64
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Reply:
    """What a receiver said. Names of headers are in lower case. `cut`: there was more of the body."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    cut: bool = False


class Opener:
    """Opens URLs under a guard, each over a connection of its own. Nothing is open between two calls.

    `resolve` and `trust` are for tests: who is asked for addresses, and which certificates count.
    """

    def __init__(self, guard: Guard, *, resolve: Resolve | None = None, trust: ssl.SSLContext | None = None) -> None:
        self.guard = guard
        self._resolve = resolve or Resolver()
        self._trust = trust

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float, most_bytes: int
    ) -> Reply:
        """Send the body and read at most `most_bytes` of the reply. Raises UrlRefused or UrlUnreachable."""
        async with self._exchange("POST", url, "url", headers, body, timeout_s) as response:
            kept, cut = bytearray(), False
            async for piece in _stream(response):
                room = most_bytes - len(kept)
                kept += piece[:room]
                if cut := len(piece) > room:
                    break
            return Reply(response.status, _headers(response), bytes(kept), cut)

    async def fetch(self, url: str, *, timeout_s: float, most_bytes: int, param: str = "url") -> Fetched:
        """The file at the URL. Raises UrlRefused, UrlUnreachable or LimitExceeded, which name `param`."""
        async with self._exchange("GET", url, param, {"accept": "*/*"}, None, timeout_s) as response:
            if response.status != 200:
                raise _status(response.status, param)
            headers = _headers(response)
            announced = headers.get("content-length", "")
            if announced.isdigit() and int(announced) > most_bytes:
                raise _too_large(param, most_bytes)
            data = bytearray()
            async for piece in _decoded(_stream(response), headers.get("content-encoding", ""), param, most_bytes):
                data += piece
                if len(data) > most_bytes:
                    raise _too_large(param, most_bytes)
            return Fetched(bytes(data), headers.get("content-type", "").partition(";")[0].strip().lower())

    @asynccontextmanager
    async def _exchange(
        self, method: str, url: str, param: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> AsyncIterator[httpcore.Response]:
        """One request and its response, within the time. What goes wrong is raised as UrlRefused or UrlUnreachable."""
        target = self.guard.check(url, param)
        network = _Pinned(self.guard, self._resolve, target)
        try:
            async with (
                asyncio.timeout(timeout_s),
                httpcore.AsyncHTTPConnection(
                    origin=httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port),
                    ssl_context=self._context(),
                    network_backend=network,
                ) as connection,
                connection.stream(
                    method,
                    httpcore.URL(
                        scheme=target.scheme.encode(),
                        host=target.host.encode(),
                        port=target.port,
                        target=target.target.encode(),
                    ),
                    headers=[*_sent(target, headers, body)],
                    content=body,
                ) as response,
            ):
                network.begun()
                yield response
        except _Inside as error:
            raise UrlRefused(f"{param!r} {self.guard.inside(str(error))}.", param=param) from None
        except TimeoutError:
            raise UrlUnreachable(f"{param!r} took longer than {timeout_s:g} s.", param=param, retryable=True) from None
        except _FAILED as error:
            raise UrlUnreachable(f"{param!r} {_why(error)}.", param=param, retryable=True) from None
        finally:
            await network.close()

    def _context(self) -> ssl.SSLContext:
        if self._trust is None:
            self._trust = httpx.create_ssl_context()
        return self._trust

    async def close(self) -> None:
        """Nothing is kept open; here for those who close what they made."""


class _Inside(Exception):
    """An address that the name has is none to connect to; the text says why."""


class _Pinned(httpcore.AsyncNetworkBackend):
    """Connects to checked addresses of the one target, and to nothing else whatever it is asked for."""

    def __init__(self, guard: Guard, resolve: Resolve, target: Target) -> None:
        self._guard = guard
        self._resolve = resolve
        self._target = target
        self._plain = httpcore.AnyIOBackend()
        self._stream: _Stream | None = None

    def begun(self) -> None:
        """The response has begun: what comes from now on is its body."""
        if self._stream is not None:
            self._stream.head.left = None

    async def close(self) -> None:
        """Close the connection, which the library leaves open when a handshake is given up."""
        if self._stream is not None:
            await self._stream.aclose()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own form
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first of the target's addresses that takes one. Raises _Inside or a network error."""
        target = self._target
        addresses = [target.address] if target.address is not None else await self._resolve(target.host)
        why = self._guard.first_refusal(target.host, addresses)
        if why is not None:
            raise _Inside(why)
        failed: Exception = httpcore.ConnectError("no address")
        for address in _in_turns(addresses)[:MOST_ADDRESSES]:
            try:
                self._stream = _Stream(await self._plain.connect_tcp(str(address), target.port, timeout=CONNECT_S))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
            else:
                return self._stream
        raise failed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own form
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Never: a socket of this machine is the inside."""
        raise _Inside("a local socket is none")

    async def sleep(self, seconds: float) -> None:
        """Between retries of the library, of which we ask none."""
        await asyncio.sleep(seconds)


def _in_turns(addresses: Sequence[Address]) -> list[Address]:
    """The addresses with their families in turns: where one family leads nowhere, the other is soon tried."""
    kinds = [[one for one in addresses if one.version == version] for version in (4, 6)]
    kinds.sort(key=lambda kind: not kind or kind[0] != addresses[0])
    return [one for pair in zip_longest(*kinds) for one in pair if one is not None]


@dataclass(slots=True)
class _Head:
    """How many more bytes may come before the response begins; None once it has."""

    left: int | None = HEAD_BYTES


class _Stream(httpcore.AsyncNetworkStream):
    """A connection of which little is read at a time.

    A few bytes may be a whole interim response, or a chunk of a body, and the library takes in all of them that it has
    read before anybody else has a turn.
    """

    def __init__(self, inner: httpcore.AsyncNetworkStream, head: _Head | None = None) -> None:
        self._inner = inner
        self.head = head or _Head()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's own form
        """Some bytes. Raises RemoteProtocolError when too many have come and no response has begun."""
        data = await self._inner.read(min(max_bytes, READ_BYTES), timeout)
        if self.head.left is not None:
            self.head.left -= len(data)
            if self.head.left < 0:
                raise httpcore.RemoteProtocolError("no response begins")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's own form
        """Send all of it."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close it; once more does nothing."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own form
    ) -> httpcore.AsyncNetworkStream:
        """The same connection under TLS."""
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self.head)

    def get_extra_info(self, info: str) -> Any:
        """What the connection tells about itself."""
        return self._inner.get_extra_info(info)


_FAILED = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError)


def _why(error: Exception) -> str:
    """What went wrong, as the end of a sentence; without words of the other side."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return "has a certificate that is not valid for its host"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "speaks no TLS that we do"
    match error:
        case httpcore.ConnectTimeout() | httpcore.ConnectError():
            return "takes no connection"
        case httpcore.NetworkError() | httpcore.TimeoutException() | httpcore.ProtocolError():
            return "gave no whole answer in HTTP/1.1"
        case _:
            return "has a host whose name leads nowhere"


def _sent(target: Target, headers: Mapping[str, str], body: bytes | None) -> Iterable[tuple[bytes, bytes]]:
    ours = {"host": target.authority, "accept-encoding": "identity", "connection": "close"}
    if body is not None:
        ours["content-length"] = str(len(body))
    given = {name.lower(): value for name, value in headers.items()}
    for name, value in {"user-agent": "Roost", **given, **ours}.items():
        yield name.encode("ascii"), value.encode("latin-1")


def _headers(response: httpcore.Response) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


async def _stream(response: httpcore.Response) -> AsyncIterator[bytes]:
    """The pieces of a body. A server may send thousands of a byte each at once: others have their turn between them."""
    count = 0
    async for piece in response.aiter_stream():
        count += 1
        if count % _TURN == 0:
            await asyncio.sleep(0)
        yield piece


async def _decoded(pieces: AsyncIterator[bytes], encoding: str, param: str, most: int) -> AsyncIterator[bytes]:
    """What the pieces say, in pieces that are small however much a few bytes stand for.

    Raises UrlUnreachable, or LimitExceeded for more than `most` packed bytes: these may stand for nothing, without end.
    """
    encoding = encoding.strip().lower()
    if encoding in {"", "identity"}:
        async for piece in pieces:
            yield piece
        return
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise UrlUnreachable(f"{param!r} comes in a Content-Encoding that was not asked for.", param=param)
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)
    packed = 0
    try:
        async for piece in pieces:
            packed += len(piece)
            if packed > most + HEAD_BYTES:  # what cannot be packed is a little larger than it is
                raise _too_large(param, most)
            left = piece
            while left:
                if reader.eof:  # perhaps another one, as where packed files were put together, or zeros that fill up
                    if not (left := left.lstrip(b"\0")):
                        break
                    reader = zlib.decompressobj(zlib.MAX_WBITS | 16)
                yield reader.decompress(left, _PIECE)
                left = reader.unconsumed_tail or reader.unused_data
                await asyncio.sleep(0)  # others have their turn while much is unpacked
    except zlib.error:
        raise _garbled(param) from None
    if not reader.eof:
        raise _garbled(param)


def _garbled(param: str) -> UrlUnreachable:
    return UrlUnreachable(f"{param!r} comes compressed, and cannot be unpacked.", param=param)


def _status(status: int, param: str) -> TaskError:
    if status in _REDIRECTS:
        return UrlUnreachable(
            f"{param!r} answers {status}, a redirect, and none is followed; give the URL that it leads to.", param=param
        )
    return UrlUnreachable(f"{param!r} answers {status}, not 200.", param=param, retryable=status in _AGAIN)


def _too_large(param: str, most: int) -> LimitExceeded:
    return LimitExceeded(f"{param!r} leads to a file of more than {most} bytes, the most that is fetched.", param=param)
