"""What can be said of the transport without a server."""

from __future__ import annotations

import ssl
from types import FunctionType

import pytest
from kombu import Connection
from kombu.transport import redis

from tasks import transport
from tasks.channel import Channel
from tasks.qos import QoS


def test_every_kombu_name_we_lean_on_is_there() -> None:
    transport.register()


def test_a_kombu_without_such_a_name_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(redis.Channel, "_brpop_start")
    with pytest.raises(transport.UnsupportedKombu, match=r"kombu 5\.7.*Channel\._brpop_start"):
        transport.register()


@pytest.mark.parametrize(
    ("ours", "stock", "added"),
    [
        (Channel, redis.Channel, {"script", "pull", "reconsider", "_ring", "_plan", "_choice", "_hand_over"}),
        (QoS, redis.QoS, {"adopt", "flush", "renew", "restore", "_restore", "_readable"}),
        (transport.Transport, redis.Transport, {"_renew", "_watch"}),
    ],
)
def test_every_method_but_those_we_add_replaces_one_of_kombu(ours: type, stock: type, added: set[str]) -> None:
    methods = {name for name, value in vars(ours).items() if isinstance(value, FunctionType)} - {"__init__"}
    assert {name for name in methods if not hasattr(stock, name)} == added


def test_tls_checks_the_certificate_unless_the_url_says_otherwise() -> None:
    transport.register()
    strict, loose = Connection("roosts://host/0"), Connection("roosts://host/0?ssl_cert_reqs=none")
    assert isinstance(strict.transport, transport.SecureTransport)
    assert strict.ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    assert isinstance(loose.transport, transport.SecureTransport)
    assert loose.ssl == {"ssl_cert_reqs": ssl.CERT_NONE}


def test_plain_connections_have_no_tls() -> None:
    transport.register()
    connection = Connection("roost://host:1234/5")
    assert type(connection.transport) is transport.Transport
    assert not connection.ssl
    assert (connection.hostname, connection.port, connection.virtual_host) == ("host", 1234, "5")
