"""What the health checks of the images call well, and what they say when it is not."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deploy import health
from tasks.settings import Settings


class _Service(ThreadingHTTPServer):
    """Answers with `status`, and keeps the last request's path and Authorization."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = HTTPStatus.OK
        self.asked: list[tuple[str, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Service

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"said the service")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
        pass


@pytest.fixture
def service() -> Iterator[_Service]:
    with _Service() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_api_is_well_when_it_is_ready(service: _Service) -> None:
    health.api(Settings(port=service.server_port))
    assert service.asked == [("/readyz", None)]


def test_an_api_that_is_not_ready_is_unwell_and_its_reason_is_told(service: _Service) -> None:
    service.status = HTTPStatus.SERVICE_UNAVAILABLE
    with pytest.raises(health.Unwell, match="503: said the service"):
        health.api(Settings(port=service.server_port))


def test_flower_is_asked_with_its_password(service: _Service) -> None:
    health.flower(Settings(flower_port=service.server_port, flower_auth="ada:secret"))
    assert service.asked == [("/api/workers", "Basic " + base64.b64encode(b"ada:secret").decode())]


def test_a_port_on_which_nobody_listens_ends_with_one(
    service: _Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROOST_PORT", str(service.server_port))
    service.shutdown()
    service.server_close()
    assert health.main(["api"]) == 1
    assert capsys.readouterr().err.startswith("api: ")


def test_an_unknown_check_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main(["elephant"]) == 2
    assert "api|worker|jobs|flower" in capsys.readouterr().err
