"""What the parent says in its child's heartbeat once the child cannot: that it is lost, until the next one beats.

The last beat of a child that was killed counts for many seconds yet, and tells of a device that works.
"""

from __future__ import annotations

import logging
import time

import msgpack
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tasks import keys

log = logging.getLogger(__name__)

_PATIENCE_S = 0.5
"""The message loop waits for this; a Valkey that is slower hears of it later."""

_TRIES = 3

_REPLACE = """#!lua flags=allow-oom
-- KEYS: workers. ARGV: worker, its beat as it was, as it shall be ('': none). 1 if that was still its beat.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
return 1
"""


class Beat:
    """The heartbeat of one worker's child, in the hands of its parent."""

    def __init__(self, url: str, name: str) -> None:
        self._name = name
        self._redis = Redis.from_url(
            url, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S, retry=Retry(NoBackoff(), 0)
        )
        self._replace = self._redis.register_script(_REPLACE)

    def lost(self, pid: int) -> bool:
        """The child `pid` works no more: say so in its beat. False if it could not be said, and should be said again.

        A beat of another child stays as it is, unless it says as much already: then it is still so.
        """
        return self._change(pid, gone=False)

    def gone(self, pid: int) -> bool:
        """The child `pid` has ended and the worker ends too: take its beat away."""
        return self._change(pid, gone=True)

    def _change(self, pid: int, *, gone: bool) -> bool:
        try:
            for _ in range(_TRIES):
                beat = self._redis.hget(keys.WORKERS, self._name)
                if not isinstance(beat, bytes):
                    return True
                body = msgpack.unpackb(beat)
                if body.get("pid") != pid and not body.get("lost"):
                    return True
                after = b"" if gone else msgpack.packb({**body, "lost": True, "at": time.time()})
                if self._replace(keys=[keys.WORKERS], args=[self._name, beat, after]):
                    return True
        except (RedisError, OSError) as error:
            log.debug("the child's beat was not changed: %s", type(error).__name__)
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
            log.warning("the child's beat could not be read")
            return True
        return False
