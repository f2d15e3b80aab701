"""Publishing to those who wait. A notice is a hint: what cannot be sent is logged, and its readers look at the row."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from uuid import UUID

from redis import Redis
from redis.exceptions import RedisError

from tasks import keys
from tasks.admission import ended_commands
from tasks.notices import Change, Piece, Reply, pack_changes, pack_pieces, pack_replies

log = logging.getLogger(__name__)


class Wakes:
    """One pipelined call for a batch: a message to each API process whose callers wait, and one to all."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def changed(
        self,
        changes: Sequence[Change],
        replies: Mapping[str, Sequence[Reply]] | None = None,
        ended: Mapping[str, Sequence[UUID]] | None = None,
        *,
        told: bool = False,
    ) -> None:
        """Tell that these jobs have changed; `replies` are by API process, `ended` by caller: open no more.

        `told`: there are webhooks to be sent.
        """
        if not changes:
            return
        pipe = self._redis.pipeline(transaction=False)
        for address, found in (replies or {}).items():
            pipe.publish(keys.reply(address), pack_replies(found))
        pipe.publish(keys.CHANGES, pack_changes(changes))
        if told:
            pipe.publish(keys.DELIVERIES, b"")
        for command in ended_commands(ended or {}):
            pipe.execute_command(*command)  # type: ignore[no-untyped-call]
        try:
            pipe.execute()
        except (RedisError, OSError) as error:
            log.warning("waiters of %d jobs could not be woken: %s", len(changes), type(error).__name__)

    def said(self, pieces: Sequence[Piece]) -> None:
        """Tell more of texts that are being generated."""
        try:
            self._redis.publish(keys.PIECES, pack_pieces(pieces))
        except (RedisError, OSError) as error:
            log.warning("%d pieces of texts could not be told: %s", len(pieces), type(error).__name__)
