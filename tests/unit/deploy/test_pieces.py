from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import pytest
import uvicorn
from uvicorn.importer import import_from_string

from api.heads import BoundedHeads
from deploy import pieces, serve
from deploy.embedded import serve as embedded
from tasks.settings import Settings


def _settings(**values: object) -> Settings:
    return Settings.model_validate({"broker_url": "roost://:pw@h:1/0", **values})


def test_a_device_worker_listens_to_every_queue_of_jobs_and_to_no_other() -> None:
    argv = pieces.worker(_settings(), "gpu0")

    queues = argv[argv.index("-Q") + 1].split(",")
    assert len(queues) == 10
    assert all(queue.split(".")[0] in {"interactive", "bulk"} for queue in queues)
    assert argv[argv.index("-n") + 1] == "gpu0@%h"


def test_the_chores_worker_listens_to_the_sweeps_only() -> None:
    argv = pieces.chores(_settings())

    assert argv[argv.index("-Q") + 1] == "jobs.sweep"


@pytest.mark.parametrize("make", [pieces.api, pieces.chores, pieces.sender, pieces.beat, pieces.feeder, pieces.flower])
def test_no_command_line_shows_a_secret(make: object) -> None:
    settings = _settings(flower_auth="me:s3cret", database_url="postgresql+psycopg://u:pw@h/d")

    assert callable(make)
    assert not [word for word in make(settings) if "s3cret" in word or "pw" in word]


def test_flower_gets_the_broker_in_the_form_that_it_knows() -> None:
    assert pieces.flower_environment(_settings())["ROOST_BROKER_URL"] == "redis://:pw@h:1/0"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_flower_needs_no_password_on_loopback(host: str) -> None:
    assert "FLOWER_BASIC_AUTH" not in pieces.flower_environment(_settings(flower_host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", ""])
def test_flower_beyond_loopback_without_a_password_is_refused(host: str) -> None:
    with pytest.raises(pieces.UnsafeFlowerError, match="ROOST_FLOWER_AUTH"):
        pieces.flower_environment(_settings(flower_host=host))


@pytest.mark.parametrize("auth", ["me", "me:", ":secret", "me:a,b"])
def test_credentials_that_flower_would_read_otherwise_are_refused(auth: str) -> None:
    with pytest.raises(pieces.UnsafeFlowerError, match="user:password"):
        pieces.flower_environment(_settings(flower_auth=auth))


def test_flower_gets_its_password_by_the_environment() -> None:
    assert (
        pieces.flower_environment(_settings(flower_host="0.0.0.0", flower_auth="me:s3cret"))["FLOWER_BASIC_AUTH"]
        == "me:s3cret"
    )


def test_both_ways_to_serve_bound_the_heads_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[uvicorn.Config] = []

    def run(server: uvicorn.Server, sockets: Sequence[socket.socket] = ()) -> None:
        for one in sockets or ():
            one.close()
        kept.append(server.config)
        server.started = True

    monkeypatch.setattr(uvicorn.Server, "run", run)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        embedded.main([str(os.dup(listener.fileno())), "info"])
    serve.main(["127.0.0.1", "8090", "1", "info"])
    assert [import_from_string(config.http) for config in kept] == [BoundedHeads] * 2


def test_the_api_is_served_on_the_address_of_the_settings() -> None:
    argv = pieces.api(_settings(host="::1", port=8099, api_processes=3, log_level="warning"))

    assert argv[1:] == ("-P", "-m", "deploy.serve", "::1", "8099", "3", "warning")
