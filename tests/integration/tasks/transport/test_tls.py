"""TLS to the broker, with a certificate that is checked."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from kombu import Connection

from tasks.dispatch import Publisher
from tasks.messages import Submission
from tests.integration.tasks.transport.inbox import Inbox

NewJob = Callable[..., Submission]
Connect = Callable[..., Connection]


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
