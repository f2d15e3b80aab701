"""Our transport on a real Valkey: a message is always in one place, and stock kombu reads what we write."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from kombu import Connection, Consumer, Producer, Queue
from kombu.asynchronous import Hub

from deploy.embedded.valkey import ValkeyServer
from tasks import keys, transport
from tasks.channel import Channel
from tasks.dispatch import Publisher
from tasks.envelope import queue_of
from tasks.errors import BrokerUnavailable
from tasks.messages import Submission
from tasks.pull_script import PULL, Plan, Section, Source, pull_arguments, pull_keys
from tasks.settings import Settings, plain_redis

NewJob = Callable[..., Submission]
Connect = Callable[..., Connection]
LEASE_S = 0.4


@pytest.fixture
def client(broker_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(plain_redis(broker_url)) as client:
        yield client


@pytest.fixture
def publisher(broker_url: str) -> Iterator[Publisher]:
    publisher = Publisher(Settings(broker_url=broker_url))
    yield publisher
    publisher.close()


@pytest.fixture
def connect(broker_url: str) -> Iterator[Connect]:
    transport.register()
    with ExitStack() as stack:

        def connect(url: str = broker_url, **options: Any) -> Connection:
            return stack.enter_context(Connection(url, transport_options=options))

        yield connect


class Inbox:
    """A consumer of some queues, and what it was given."""

    def __init__(self, connection: Connection, *queues: str, prefetch: int = 0, **options: Any) -> None:
        self.connection = connection
        self.channel: Channel = connection.channel()
        self.messages: list[Any] = []
        self.consumer = Consumer(
            self.channel,
            [Queue(name, routing_key=name) for name in queues],
            on_message=self.messages.append,
            accept=["json"],
            **options,
        )
        self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    def wait(self, count: int, timeout_s: float = 5.0) -> list[Any]:
        end = time.monotonic() + timeout_s
        while len(self.messages) < count:
            try:
                # In steps: messages are restored when nothing comes.
                self.connection.drain_events(timeout=0.1)
            except TimeoutError:
                assert time.monotonic() < end, f"{len(self.messages)} of {count} messages came"
        return self.messages

    @property
    def ids(self) -> list[str]:
        return [message.headers["id"] for message in self.messages]


def ids(jobs: list[Submission]) -> list[str]:
    return [str(job.id) for job in jobs]


def test_a_taken_message_is_recorded_until_it_is_acked(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    job = new_job()
    publisher.publish_now([job])
    inbox = Inbox(connect(), queue_of(job))
    (message,) = inbox.wait(1)
    assert client.hkeys("unacked") == client.zrange("unacked_index", 0, -1) == [str(job.id).encode()]
    assert publisher.held_now([job.id]) == {job.id}
    message.ack()
    assert not client.exists("unacked", "unacked_index", keys.HELD, queue_of(job))


def test_many_messages_come_in_one_pull_in_the_order_they_were_sent(
    publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(20)]
    publisher.publish_now(jobs)
    inbox = Inbox(connect(), "interactive.xs")
    inbox.connection.drain_events(timeout=5.0)
    assert inbox.ids == ids(jobs)


def test_a_waiting_consumer_is_woken_by_the_bell(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    inbox = Inbox(connect(), "interactive.xs")
    with pytest.raises(socket.timeout):
        inbox.connection.drain_events(timeout=0.05)
    publisher.publish_now([new_job()])
    inbox.wait(1, timeout_s=0.5)


def test_a_prefetch_count_bounds_what_is_taken(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job() for _ in range(10)])
    inbox = Inbox(connect(), "interactive.xs", prefetch=4)
    assert len(inbox.wait(4)) == 4
    assert client.llen("interactive.xs") == 6


def test_queues_take_turns(publisher: Publisher, connect: Connect, new_job: NewJob) -> None:
    publisher.publish_now([new_job(bucket=bucket) for bucket in ("xs", "s") for _ in range(3)])
    inbox = Inbox(connect(), "interactive.xs", "interactive.s", prefetch=1)
    seen = []
    for count in range(1, 7):
        message = inbox.wait(count)[-1]
        seen.append(message.delivery_info["routing_key"])
        message.ack()
    assert sorted(seen[:2]) == sorted(seen[2:4]) == sorted(seen[4:]) == ["interactive.s", "interactive.xs"]


def test_a_consumer_that_leaves_messages_wakes_the_next(
    publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job(), new_job()])
    first = Inbox(connect(), "interactive.xs", prefetch=1)
    first.wait(1)
    Inbox(connect(), "interactive.xs").wait(1, timeout_s=0.5)


def test_cancelled_messages_are_dropped_and_forgotten(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    kept, gone = new_job(), new_job()
    publisher.publish_now([gone, kept])
    client.zadd(keys.CANCELLED, {str(gone.id): 1e12})
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(1)
    assert inbox.ids == ids([kept])
    assert publisher.held_now([kept.id, gone.id]) == {kept.id}
    assert client.hkeys("unacked") == [str(kept.id).encode()]


def test_restored_untouched_a_message_is_what_it_was_and_next_in_line(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(5)]
    publisher.publish_now(jobs)
    before = client.lrange("interactive.xs", 0, -1)
    inbox = Inbox(connect(), "interactive.xs", prefetch=3)
    inbox.wait(3)
    inbox.channel.qos.restore(ids(jobs[:3]), marked=False)
    assert client.lrange("interactive.xs", 0, -1) == before
    assert not client.exists("unacked", "unacked_index")


def test_a_requeued_message_comes_back_marked(publisher: Publisher, connect: Connect, new_job: NewJob) -> None:
    publisher.publish_now([new_job()])
    inbox = Inbox(connect(), "interactive.xs")
    (first,) = inbox.wait(1)
    first.requeue()
    second = inbox.wait(2)[1]
    assert not first.headers.get("redelivered")
    assert second.headers["redelivered"]
    assert second.delivery_info["redelivered"]


def test_a_closed_channel_puts_back_what_it_held(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(3)]
    publisher.publish_now(jobs)
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(3)[0].ack()
    inbox.channel.close()
    again = Inbox(connect(), "interactive.xs")
    again.wait(2)
    assert again.ids == ids(jobs[1:])
    assert client.scard(keys.HELD) == 2


def test_the_messages_of_a_silent_consumer_return_marked(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job(), new_job()]
    publisher.publish_now(jobs)
    silent = Inbox(connect(visibility_timeout=LEASE_S), "interactive.xs")
    silent.wait(2)
    other = Inbox(connect(visibility_timeout=LEASE_S, unacked_restore_throttle=1), "interactive.xs")
    other.wait(2)
    assert other.ids == ids(jobs)
    assert all(message.headers["redelivered"] for message in other.messages)


def test_a_consumer_that_renews_keeps_its_messages(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job()])
    holder = Inbox(connect(visibility_timeout=LEASE_S), "interactive.xs")
    holder.wait(1)
    other = Inbox(connect(visibility_timeout=LEASE_S, unacked_restore_throttle=1), "interactive.xs")
    for _ in range(6):
        with pytest.raises(socket.timeout):
            other.connection.drain_events(timeout=LEASE_S / 4)
        holder.channel.qos.renew()
    assert not other.messages


def test_nothing_is_renewed_that_was_acked(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    publisher.publish_now([new_job()])
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(1)[0].ack()
    inbox.channel.qos.renew()
    assert not client.exists("unacked_index")


def test_acks_within_an_event_loop_go_out_together_a_moment_later(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    hub, connection = Hub(), connect()
    publisher.publish_now([new_job() for _ in range(3)])
    inbox = Inbox(connection, "interactive.xs")
    connection.transport.register_with_event_loop(connection.connection, hub)
    turns = hub.create_loop()
    while not inbox.messages:
        next(turns)
    for message in inbox.messages:
        message.ack()
    assert client.hlen("unacked") == 3
    while client.hlen("unacked") == 3:
        next(turns)
    assert client.hlen("unacked") == 0
    hub.close()


def test_a_broker_that_says_nothing_is_given_up_after_ten_ticks(connect: Connect) -> None:
    connection = connect()
    inbox = Inbox(connection, "interactive.xs")
    for _ in range(10):
        connection.transport._watch()
    with pytest.raises(connection.connection_errors, match="no word"):
        connection.transport._watch()
    inbox.channel.silent = 0
    connection.transport._watch()


def test_a_consumer_without_room_is_not_taken_for_deaf(publisher: Publisher, connect: Connect, new_job: NewJob) -> None:
    publisher.publish_now([new_job()])
    connection = connect()
    Inbox(connection, "interactive.xs", prefetch=1).wait(1)
    for _ in range(20):
        connection.transport._watch()


def test_what_needs_no_ack_is_not_recorded(client: redis.Redis, connect: Connect) -> None:
    connection = connect()
    inbox = Inbox(connection, "replies", no_ack=True)
    Producer(connection).publish({"pong": 1}, routing_key="replies", serializer="json")
    inbox.wait(1)
    assert not client.exists("unacked", "unacked_index")


def test_a_bell_of_a_passing_queue_does_not_stay_for_ever(client: redis.Redis, connect: Connect) -> None:
    Producer(connect()).publish({"pong": 1}, routing_key="replies", serializer="json")
    assert client.ttl(keys.bell("replies")) > 0


def test_a_message_that_cannot_be_read_does_not_stop_the_next(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    client.lpush("interactive.xs", "no json", '{"json": "but no message"}')
    job = new_job()
    publisher.publish_now([job])
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(1)
    assert inbox.ids == ids([job])


def test_purging_a_queue_frees_its_ids(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob
) -> None:
    jobs = [new_job() for _ in range(3)]
    publisher.publish_now(jobs)
    assert connect().channel().queue_purge("interactive.xs") == 3
    assert publisher.held_now([job.id for job in jobs]) == set()
    assert client.llen("interactive.xs") == 0


def test_a_stock_consumer_reads_our_messages(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, broker_url: str
) -> None:
    job = new_job()
    publisher.publish_now([job])
    inbox = Inbox(connect(plain_redis(broker_url), priority_steps=[0]), "interactive.xs")
    (message,) = inbox.wait(1)
    assert message.headers["id"] == str(job.id)
    assert len(message.payload[0]) == 1
    message.ack()
    assert not client.exists("unacked")


def test_a_stock_consumer_restores_what_one_of_ours_left(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, broker_url: str
) -> None:
    job = new_job()
    publisher.publish_now([job])
    inbox = Inbox(connect(), "interactive.xs")
    inbox.wait(1)
    stock = connect(plain_redis(broker_url), priority_steps=[0])
    stock.channel().qos.restore_by_tag(str(job.id))
    again = inbox.wait(2)[1]
    assert again.headers["redelivered"]


def test_a_stock_publisher_is_heard_within_a_second_or_so(connect: Connect, broker_url: str) -> None:
    inbox = Inbox(connect(), "interactive.xs")
    Producer(connect(plain_redis(broker_url))).publish({}, routing_key="interactive.xs", headers={"id": "x"})
    inbox.wait(1, timeout_s=2.0)


def test_one_of_ours_restores_what_a_stock_consumer_left(
    client: redis.Redis, publisher: Publisher, connect: Connect, new_job: NewJob, broker_url: str
) -> None:
    publisher.publish_now([new_job()])
    url = plain_redis(broker_url)
    Inbox(connect(url, priority_steps=[0], visibility_timeout=LEASE_S), "interactive.xs").wait(1)
    inbox = Inbox(connect(visibility_timeout=LEASE_S, unacked_restore_throttle=1), "interactive.xs")
    (message,) = inbox.wait(1)
    assert message.headers["redelivered"]


def test_consuming_goes_on_when_the_server_is_full(tmp_path: Path, connect: Connect, new_job: NewJob) -> None:
    server = ValkeyServer(tmp_path / "valkey", tmp_path / "valkey.log")
    server.start()
    with ExitStack() as ending:
        ending.callback(server.stop)
        client = ending.enter_context(redis.Redis.from_url(server.url(scheme="redis")))
        publisher = Publisher(Settings(broker_url=server.url()))
        ending.callback(publisher.close)
        jobs = [new_job(inputs=b"x" * 8000) for _ in range(50)]
        publisher.publish_now(jobs)
        client.config_set("maxmemory", "1mb")
        with pytest.raises(BrokerUnavailable):
            publisher.publish_now([new_job()])
        with Connection(server.url()) as connection:
            inbox = Inbox(connection, "interactive.xs")
            inbox.wait(50)
            inbox.channel.qos.renew()
            inbox.channel.qos.restore(ids(jobs[:1]), marked=False)
            for message in inbox.messages[1:]:
                message.ack()
        assert client.llen("interactive.xs") == 1
        assert client.scard(keys.HELD) == 1


@pytest.fixture
def tls_port(broker_url: str, tmp_path: Path) -> Iterator[int]:
    """A port that speaks TLS, with a certificate nobody vouches for, in front of the server."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl for a certificate")
    certificate = tmp_path / "certificate.pem"
    subprocess.run(
        (
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", certificate, "-out", tmp_path / "public.pem"),
        ),
        check=True,
        capture_output=True,
    )
    with certificate.open("ab") as both:
        both.write((tmp_path / "public.pem").read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    behind = urlsplit(broker_url)

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()

    def serve() -> None:
        while True:
            try:
                front = listener.accept()[0]
            except OSError:
                return
            try:
                front = context.wrap_socket(front, server_side=True)
            except (ssl.SSLError, OSError):
                front.close()
                continue
            back = socket.create_connection((behind.hostname, behind.port))
            for ends in ((front, back), (back, front)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_tls_is_spoken_and_the_certificate_checked(
    tls_port: int, connect: Connect, publisher: Publisher, new_job: NewJob, broker_url: str, tmp_path: Path
) -> None:
    number = broker_url.rpartition("/")[2]
    publisher.publish_now([new_job()])
    trusted = f"roosts://127.0.0.1:{tls_port}/{number}?ssl_ca_certs={tmp_path / 'public.pem'}&ssl_cert_reqs=required"
    Inbox(connect(trusted), "interactive.xs").wait(1)
    unknown = connect(f"roosts://127.0.0.1:{tls_port}/{number}")
    with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
        unknown.connect()


class Puller:
    """Runs the pull script alone."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._script = client.register_script(PULL)

    def __call__(self, *sections: Section, cap_ms: float = 1000.0, most: int = 256) -> list[str]:
        plan = Plan(sections, cap_ms)
        taken = self._script(keys=pull_keys(plan, "unacked", "unacked_index"), args=pull_arguments(plan, most))
        return [plan.sources[number - 1].queue for number in taken[::2]]


@pytest.fixture
def pull(client: redis.Redis) -> Puller:
    return Puller(client)


@pytest.fixture
def full(publisher: Publisher, new_job: NewJob) -> None:
    """Ten messages in each of three queues."""
    for bucket in ("xs", "m", "xl"):
        publisher.publish_now([new_job(bucket=bucket) for _ in range(10)])


@pytest.mark.usefixtures("full")
def test_a_room_is_shared_by_the_queues_of_a_section(pull: Puller) -> None:
    section = Section((Source("interactive.m", 200.0), Source("interactive.xs", 100.0)), room_ms=900.0, jobs=100)
    assert pull(section) == ["interactive.m"] * 4 + ["interactive.xs"]


@pytest.mark.usefixtures("full")
def test_a_message_dearer_than_the_room_comes_alone(pull: Puller) -> None:
    section = Section((Source("interactive.xl", 20_000.0), Source("interactive.xs", 2.0)), room_ms=1000.0, jobs=100)
    assert pull(section) == ["interactive.xl"]


@pytest.mark.usefixtures("full")
def test_what_one_section_takes_is_missing_in_the_next(pull: Puller) -> None:
    first = Section((Source("interactive.xs", 2.0),), room_ms=10.0, jobs=100)
    second = Section((Source("interactive.m", 5.0),), room_ms=20.0, jobs=100)
    assert pull(first, second) == ["interactive.xs"] * 5 + ["interactive.m"] * 2


@pytest.mark.usefixtures("full")
def test_the_least_of_a_section_comes_even_without_room(pull: Puller) -> None:
    first = Section((Source("interactive.xs", 2.0),), room_ms=10.0, jobs=5)
    second = Section((Source("interactive.m", 5.0), Source("interactive.xl")), room_ms=-100.0, jobs=5, least=1)
    assert pull(first, second) == ["interactive.xs"] * 5 + ["interactive.m"]


@pytest.mark.usefixtures("full")
def test_no_more_jobs_come_than_the_section_and_the_pull_allow(pull: Puller) -> None:
    section = Section((Source("interactive.xs", 2.0), Source("interactive.m", 2.0)), room_ms=1000.0, jobs=12)
    assert pull(section) == ["interactive.xs"] * 10 + ["interactive.m"] * 2
    assert pull(section, most=3) == ["interactive.m"] * 3


def test_a_tag_within_a_text_is_not_taken_for_the_message_s_own(
    client: redis.Redis, publisher: Publisher, pull: Puller, new_job: NewJob
) -> None:
    job = new_job(model='"delivery_tag": "forged"', caller='\\"delivery_tag":"forged"')
    publisher.publish_now([job])
    pull(Section((Source("interactive.xs"),), room_ms=1.0, jobs=1))
    assert client.hkeys("unacked") == [str(job.id).encode()]
