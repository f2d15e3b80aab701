"""What a worker does with the broker's channel besides receiving: our transport and the stock ones differ in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from kombu.transport import redis

from tasks import keys
from tasks.channel import Channel, Pulls
from tasks.pull_script import PLACE

log = logging.getLogger(__name__)


class Delivery(Protocol):
    """The task channel of one connection. Messages are kombu's."""

    def adopt(self, messages: Sequence[Any], earlier: Delivery | None) -> None:
        """Go on with what was received, and acked, on a connection that is gone."""
        ...

    def restore(self, messages: Sequence[Any], *, marked: bool) -> None:
        """Put messages back, the first one next in line. Those that may have run are marked as redelivered."""
        ...

    def pause(self) -> None:
        """Take no more."""
        ...

    def reconsider(self) -> None:
        """See whether there is more to take."""
        ...

    def keep(self) -> None:
        """Do now what the message loop does from time to time: send acks, extend leases."""
        ...

    def place(self, worker: str, data: bytes, lease_s: float) -> int:
        """Tell the other workers of this one, for so long, or with no data that it is gone; how many they are."""
        ...


class DoorbellDelivery:
    """Over `roost://`: messages outlive their connection, under their tags."""

    def __init__(self, channel: Channel, pulls: Pulls) -> None:
        self.channel = channel
        channel.pulls = pulls
        # What the child works on must not go to another worker because a connection broke: `adopt` follows.
        channel.do_restore = False

    def adopt(self, messages: Sequence[Any], earlier: Delivery | None) -> None:
        """Hold them under the new connection, and send the acks that the old one could not."""
        acked = list[str]()
        if isinstance(earlier, DoorbellDelivery):
            acked, earlier.channel.qos.acked = earlier.channel.qos.acked, acked
        self.channel.qos.adopt(messages, acked)

    def restore(self, messages: Sequence[Any], *, marked: bool) -> None:
        """Put them back in one call."""
        tags = [message.delivery_tag for message in messages]
        self.channel.qos.restore(tags, marked=marked)
        for tag in tags:
            self.channel.qos._quick_ack(tag)

    def pause(self) -> None:
        """Take no more."""
        self.channel.paused = True

    def reconsider(self) -> None:
        """Look at the queues, if the worker wants more."""
        self.channel.reconsider()

    def keep(self) -> None:
        """Send acks and extend leases."""
        self.channel.qos.flush()
        self.channel.qos.renew()

    def place(self, worker: str, data: bytes, lease_s: float) -> int:
        """Through a hash beside the queues."""
        return int(self.channel.script(PLACE, [keys.PLACES], [worker, lease_s, data]))


class StockDelivery:
    """Over another transport. With Redis tags outlive a connection; elsewhere the broker delivers again by itself."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._lasting = isinstance(channel, redis.Channel)
        if self._lasting:
            channel.do_restore = False

    def adopt(self, messages: Sequence[Any], earlier: Delivery | None) -> None:
        """Hold them under the new connection, where that means anything."""
        if self._lasting:
            for message in messages:
                message.channel = self._channel
                self._channel.qos._quick_append(message.delivery_tag, message)

    def restore(self, messages: Sequence[Any], *, marked: bool) -> None:
        """Give them back one by one; these transports mark all of them."""
        for message in reversed(messages):
            message.reject_log_error(log, (OSError,), requeue=True)

    def pause(self) -> None:
        """Nothing: the consumer is cancelled."""

    def reconsider(self) -> None:
        """Nothing: what comes is bounded by the prefetch count alone."""

    def keep(self) -> None:
        """Nothing: acks go at once, and there are no leases."""

    def place(self, worker: str, data: bytes, lease_s: float) -> int:
        """Nobody: what comes over these transports cannot be chosen by model."""
        return 0


def delivery_of(channel: Any, pulls: Pulls) -> Delivery:
    """The delivery that fits the channel's transport."""
    if isinstance(channel, Channel):
        return DoorbellDelivery(channel, pulls)
    return StockDelivery(channel)
