"""`roost://` and `roosts://`: kombu's Redis transport with a doorbell in place of its pop.

The stock transport takes one message at a time by BRPOP and records it afterwards, so a consumer killed in between
loses it. This one blocks on *bells*, lists that hold no messages, and then takes many messages from all its queues in
one script that records them as it takes them (see `tasks.pull_script`). Acks go out many at a time. What a consumer
holds is under a lease which it renews, so the messages of a dead one return soon and those of a live one never do.

Messages look as kombu's own do, so other Celery programs may publish through either transport; only this one sees the
messages that lie by model. It leans on names that kombu does not promise to keep; `register` checks them.
"""

from __future__ import annotations

import ssl
from typing import Any

from kombu.asynchronous import Hub
from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ConnectionError as RedisConnectionError

from tasks.channel import Channel

SCHEME, SECURE_SCHEME = "roost", "roosts"

_SILENT_TICKS = 10


class Transport(redis.Transport):  # type: ignore[misc]
    """The transport of `roost://`."""

    Channel = Channel
    loop: Hub | None = None

    def register_with_event_loop(self, connection: Any, loop: Hub) -> None:
        """Consume from Celery's event loop, which also sees to acks, leases and the watch."""
        super().register_with_event_loop(connection, loop)
        self.loop = loop
        lease = self.client.transport_options.get("visibility_timeout", Channel.visibility_timeout)
        loop.call_repeatedly(lease / 4, self._renew)
        loop.call_repeatedly(1.0, self._watch)

    def _renew(self) -> None:
        for channel in self.channels:
            if channel._qos is not None:
                channel._qos.renew()

    def _watch(self) -> None:
        """Start over after ten seconds without a word: the server answers each second, even if only with nothing.

        Counted in turns of ours, so that a message loop that was held up does not take its own pause for the broker's.
        """
        for channel in self.channels:
            listening = channel.active_queues and channel.qos.can_consume()
            channel.silent = channel.silent + 1 if listening else 0
            if channel.silent > _SILENT_TICKS:
                raise RedisConnectionError("no word from the broker for ten seconds")


class SecureTransport(Transport):
    """The transport of `roosts://`: TLS, with the server's certificate checked unless the URL says otherwise."""

    def __init__(self, client: Any, **kwargs: Any) -> None:
        if not client.ssl:
            client.ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
        super().__init__(client, **kwargs)


_LEANT_ON: dict[Any, tuple[str, ...]] = {
    redis.Channel: (
        "_brpop_start",
        "_brpop_read",
        "_put",
        "_size",
        "_has_queue",
        "_purge",
        "_delete",
        "_create_client",
        "_flush_brpop_reauth",
        "_in_poll",
        "_brpop_sent_at",
        "active_queues",
        "client",
        "from_transport_options",
        "priority_steps",
    ),
    redis.QoS: (
        "append",
        "ack",
        "reject",
        "restore_by_tag",
        "restore_unacked",
        "restore_unacked_once",
        "restore_visible",
        "can_consume",
        "can_consume_max_estimate",
        "unacked_key",
        "unacked_index_key",
        "visibility_timeout",
        "_flush",
    ),
    redis.Transport: ("_deliver", "register_with_event_loop", "brpop_timeout"),
    redis.MultiChannelPoller: ("on_poll_start", "maybe_restore_messages", "maybe_check_brpop_health"),
    redis.PublishBatch: ("add",),
}


class UnsupportedKombu(RuntimeError):
    """The installed kombu lacks names this transport is built on: install kombu 5.7, or use redis:// meanwhile."""


def register() -> None:
    """Make `roost://` and `roosts://` known to kombu. Raises UnsupportedKombu."""
    missing = [
        f"{owner.__name__}.{name}" for owner, names in _LEANT_ON.items() for name in names if not hasattr(owner, name)
    ]
    if missing:
        raise UnsupportedKombu(f"{UnsupportedKombu.__doc__} Missing: {', '.join(missing)}")
    TRANSPORT_ALIASES[SCHEME] = "tasks.transport:Transport"
    TRANSPORT_ALIASES[SECURE_SCHEME] = "tasks.transport:SecureTransport"
