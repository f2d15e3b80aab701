"""The messages that a channel of our transport holds: their leases, their acks, and their way back.

A lease is a time in `unacked_index`, set by the pull and renewed by `renew`; who finds one ended puts the message back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kombu.transport import redis, virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from tasks import keys
from tasks.held_scripts import ACK, OVERDUE, RENEW, RESTORE, restore_arguments

if TYPE_CHECKING:
    from tasks.channel import Channel

log = logging.getLogger(__name__)

_RESTORE_MOST = 200
_ACKS_AT_ONCE, _ACK_DELAY_S = 256, 0.005


class QoS(redis.QoS):  # type: ignore[misc]
    """The messages a channel holds. In an event loop an ack is kept for a moment, so that many go at once."""

    channel: Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.acked: list[str] = []

    def can_consume(self) -> bool:
        """Whether another message may be taken. A plan knows by itself; the prefetch count is for those without one."""
        return self.channel.open and (self.channel.pulls is not None or bool(super().can_consume()))

    def append(self, message: Any, delivery_tag: str) -> None:
        """Note a delivered message; the script has recorded it on the server, unless it came another way."""
        if self.channel.recorded:
            virtual.QoS.append(self, message, delivery_tag)
        else:
            super().append(message, delivery_tag)

    def adopt(self, messages: Iterable[Any], acked: Sequence[str]) -> None:
        """Hold messages that were delivered on an earlier connection, and send the acks that it could not."""
        for message in messages:
            message.channel = self.channel
            self._quick_append(message.delivery_tag, message)
        self.renew()
        self.acked += acked
        self.flush()

    def ack(self, delivery_tag: str) -> None:
        """The message is done with. On a channel that was closed it stays in `acked` for the next one."""
        self.acked.append(delivery_tag)
        self._quick_ack(delivery_tag)
        connection = self.channel.connection
        if connection is None:
            return
        if connection.loop is None or len(self.acked) >= _ACKS_AT_ONCE:
            self.flush()
        elif len(self.acked) == 1:
            connection.loop.call_later(_ACK_DELAY_S, self.flush)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop the message, or put it back marked as redelivered."""
        if requeue:
            self.restore([delivery_tag], marked=True)
            self._quick_ack(delivery_tag)
        else:
            self.ack(delivery_tag)

    def flush(self) -> None:
        """Send the acks that have gathered. They are kept if that fails."""
        if self.acked and not self.channel.closed:
            done = self.acked[:]
            self.channel.script(ACK, [self.unacked_key, self.unacked_index_key, keys.HELD], done)
            del self.acked[: len(done)]

    def renew(self) -> None:
        """Extend the lease on all that this channel holds, and send the acks that could not be sent in their time."""
        self._flush()
        if tags := list(self._delivered):
            self.channel.script(RENEW, [self.unacked_index_key], tags)
        self.flush()

    def restore(self, tags: Sequence[str], *, marked: bool) -> None:
        """Put messages back, the first of `tags` next in line; those that may have run marked as redelivered."""
        if not tags:
            return
        newest_first = list(reversed(tags))
        payloads = None
        if marked:
            values = self.channel.caller.hmget(self.unacked_key, newest_first)
            present = [(tag, value) for tag, value in zip(newest_first, values, strict=True) if value]
            newest_first = [tag for tag, _ in present]
            payloads = [_marked(value) for _, value in present]
        self._restore(newest_first, payloads)

    def restore_visible(self, start: int = 0, num: int | None = None, interval: int = 1) -> None:
        """Put back what silent consumers held. Not just after connecting: others may still be about to renew."""
        if time.monotonic() - self.channel.opened < self.visibility_timeout / 2:
            return
        arguments = [self.visibility_timeout, num or _RESTORE_MOST]
        while found := self.channel.script(OVERDUE, [self.unacked_key, self.unacked_index_key], arguments):
            back = self._readable(zip(map(bytes_to_str, found[::2]), found[1::2], strict=True))
            self._restore(list(back), list(back.values()), lease_s=self.visibility_timeout)
            log.warning("%d messages of a silent consumer go back to their queues", len(back))
            if len(found) < 2 * arguments[1]:
                return

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Put one message back marked."""
        self.restore([tag], marked=True)

    def restore_unacked(self, client: Any = None) -> None:
        """Put everything back marked."""
        self._flush()
        self.restore(list(self._delivered), marked=True)
        self._delivered.clear()

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """At close: put back what is not acked. Without the server, the leases see to that."""
        self._on_collect.cancel()
        try:
            if self.restore_at_shutdown and self.channel.do_restore:
                self.restore_unacked()
        except self.channel.connection_errors as error:
            log.warning("messages stay with their leases: %s", type(error).__name__)
        self._delivered.restored = True

    def _readable(self, overdue: Iterable[tuple[str, bytes]]) -> dict[str, str]:
        """Messages by tag, marked as redelivered. One that no consumer can read is dropped here for good."""
        marked: dict[str, str] = {}
        for tag, value in overdue:
            try:
                marked[tag] = _marked(value)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                log.critical("dropped message %s that cannot be read: %s", tag, type(error).__name__)
                self.acked.append(tag)
        self.flush()
        return marked

    def _restore(self, newest_first: Sequence[str], payloads: Sequence[str] | None, lease_s: float = 0.0) -> None:
        arguments = restore_arguments(newest_first, payloads, lease_s)
        for tag in self.channel.script(RESTORE, [self.unacked_key, self.unacked_index_key], arguments):
            super().restore_by_tag(bytes_to_str(tag))


def _marked(value: bytes | str) -> str:
    """The message of an `unacked` value, marked as redelivered in the two places where kombu looks."""
    payload = loads(bytes_to_str(value))[0]
    payload.setdefault("headers", {})["redelivered"] = True
    payload["properties"].setdefault("delivery_info", {})["redelivered"] = True
    return str(dumps(payload))
