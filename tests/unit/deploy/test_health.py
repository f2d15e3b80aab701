"""What the health checks of the images call well, and what they say when it is not."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from deploy import health
from tasks.settings import Settings


class _Service(ThreadingHTTPServer):
    """Answers with `status`, and keeps the last request's path and Authorization."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = HTTPStatus.OK
        self.body = b"ok"
        self.asked: list[tuple[str, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Service

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

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


def _not_ready(service: _Service, **reasons: str) -> Settings:
    service.status = HTTPStatus.SERVICE_UNAVAILABLE
    service.body = json.dumps({"error": {}, "reasons": reasons}).encode()
    return Settings(port=service.server_port)


def test_an_api_without_its_database_is_unwell_and_says_so(service: _Service) -> None:
    with pytest.raises(health.Unwell, match=r"^The database is away\.$"):
        health.api(_not_ready(service, worker="No worker.", database="The database is away."))


def test_an_api_that_only_lacks_a_worker_is_well(service: _Service) -> None:
    health.api(_not_ready(service, worker="No worker."))


def test_an_api_that_fails_is_unwell(service: _Service) -> None:
    service.status = HTTPStatus.INTERNAL_SERVER_ERROR
    with pytest.raises(health.Unwell, match="500"):
        health.api(Settings(port=service.server_port))


def test_a_clock_that_wrote_its_schedule_is_well(tmp_path: Path) -> None:
    (tmp_path / "beat-schedule.db").touch()
    health.beat(Settings(data_dir=tmp_path))


def test_a_clock_that_stopped_writing_is_unwell(tmp_path: Path) -> None:
    schedule = tmp_path / "beat-schedule"
    schedule.touch()
    long_ago = time.time() - 2 * health.TICKED_S
    os.utime(schedule, (long_ago, long_ago))
    with pytest.raises(health.Unwell, match="800 s ago"):
        health.beat(Settings(data_dir=tmp_path))


def test_a_clock_that_never_wrote_is_unwell(tmp_path: Path) -> None:
    with pytest.raises(health.Unwell, match="no schedule"):
        health.beat(Settings(data_dir=tmp_path))


def test_flower_is_asked_with_its_password(service: _Service) -> None:
    health.flower(Settings(flower_port=service.server_port, flower_auth="ada:secret"))
    assert service.asked == [("/flower/api/workers", "Basic " + base64.b64encode(b"ada:secret").decode())]


def test_a_flower_that_refuses_the_password_is_unwell(service: _Service) -> None:
    service.status = HTTPStatus.UNAUTHORIZED
    with pytest.raises(health.Unwell, match="401"):
        health.flower(Settings(flower_port=service.server_port, flower_auth="ada:wrong"))


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
    assert "api|worker|chores|beat|feeder|sender|flower" in capsys.readouterr().err
