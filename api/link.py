"""One pub/sub connection of a process: it hears how jobs end, and knows when it may have missed something."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tasks import keys
from tasks.notices import Change, Piece, Reply, unpack_changes, unpack_pieces, unpack_replies

log = logging.getLogger(__name__)

PING_S = 5.0
"""A link that is silent for this long is asked whether it lives; twice as long, and it is taken for dead."""

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


_PIECES = keys.PIECES.encode()


class Link:
    """Calls back from the event loop; callbacks must return at once.

    `up` is called after each (re)connect, once all channels are subscribed: read then what may have been missed.
    `down` is called when a link is lost, and `away` after each try to have one with the seconds that there was none
    since the last call. A message that cannot be read is logged and passed over. Replies come to a process with an
    `instance`, its name, and texts that are being generated to one that wants `pieces`.
    """

    def __init__(
        self,
        url: str,
        instance: str = "",
        *,
        replies: Callable[[Sequence[Reply]], None] = lambda _: None,
        changes: Callable[[Sequence[Change]], None],
        pieces: Callable[[Sequence[Piece]], None] | None = None,
        up: Callable[[], None],
        down: Callable[[], None],
        away: Callable[[float], None] = lambda _: None,
    ) -> None:
        # The library reconnects and subscribes again silently when it may retry; then nobody would know of the gap.
        self._redis: Redis = Redis.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=2.0,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            decode_responses=False,
        )
        self._own = keys.reply(instance).encode() if instance else None
        self._on_replies = replies
        self._on_changes = changes
        self._on_pieces = pieces or (lambda _: None)
        self._channels: list[str | bytes] = [keys.CHANGES]
        if pieces is not None:
            self._channels.append(keys.PIECES)
        if self._own is not None:
            self._channels.append(self._own)
        self._on_up = up
        self._on_down = down
        self._on_away = away
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @property
    def up(self) -> bool:
        """Whether a reply published now would be heard."""
        return self._ready.is_set()

    def start(self) -> None:
        """Connect, and keep connected until closed."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="link")

    async def ready(self, timeout_s: float) -> bool:
        """Wait until the link is up; False if it is not after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Drop the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._redis.aclose()

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        since = time.monotonic()
        while True:
            pubsub = self._redis.pubsub()
            try:
                await self._subscribe(pubsub)
                since = self._away(since)
                pause = FIRST_PAUSE_S
                await self._listen(pubsub)
            except (RedisError, OSError, TimeoutError) as error:
                log.warning("pub/sub link lost: %s", type(error).__name__)
            finally:
                if self._ready.is_set():
                    self._ready.clear()
                    since = time.monotonic()
                    self._on_down()
                else:
                    since = self._away(since)
                await _close(pubsub)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _away(self, since: float) -> float:
        """Tell of the time without a link, and begin anew."""
        now = time.monotonic()
        self._on_away(now - since)
        return now

    async def _subscribe(self, pubsub: PubSub) -> None:
        await pubsub.subscribe(*self._channels)
        confirmed = 0
        async with asyncio.timeout(PING_S):
            while confirmed < len(self._channels):
                message = await pubsub.get_message(timeout=None)
                if message is not None and message["type"] == "subscribe":
                    confirmed += 1
                elif message is not None:
                    self._hear(message)
        self._ready.set()
        self._on_up()

    async def _listen(self, pubsub: PubSub) -> None:
        asked = False
        while True:
            message = await pubsub.get_message(timeout=PING_S)
            if message is not None:
                asked = False
                self._hear(message)
            elif asked:
                raise TimeoutError
            else:
                asked = True
                await pubsub.ping()

    def _hear(self, message: dict[str, Any]) -> None:
        if message["type"] != "message":
            return
        try:
            if message["channel"] == self._own:
                self._on_replies(unpack_replies(message["data"]))
            elif message["channel"] == _PIECES:
                self._on_pieces(unpack_pieces(message["data"]))
            else:
                self._on_changes(unpack_changes(message["data"]))
        except Exception:
            log.exception("a notice could not be read")


async def _close(pubsub: PubSub) -> None:
    try:
        await pubsub.aclose()  # type: ignore[no-untyped-call]
    except (RedisError, OSError) as error:
        log.debug("closing a lost link: %s", type(error).__name__)
