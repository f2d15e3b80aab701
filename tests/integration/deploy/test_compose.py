"""The compose file: what its schema allows, what Roost's commands and settings are, and what we promise about it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import redis
import yaml

from deploy.cli import main
from deploy.embedded.ports import chosen
from deploy.embedded.valkey import find_program
from deploy.health import CHECKS
from tasks.settings import Settings

FOLDER = Path(__file__).parents[3] / "deploy"
SECRETS = {"POSTGRES_PASSWORD", "VALKEY_PASSWORD", "ROOST_FLOWER_AUTH"}
FOREIGN = {"HF_HOME", "HF_TOKEN", "XDG_CACHE_HOME"}
"""Environment names of Roost's own services that are not its own: where models are fetched from and kept."""

Service = dict[str, Any]


@pytest.fixture(scope="module")
def text() -> str:
    return (FOLDER / "docker-compose.yml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def compose(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Service]:
    found: dict[str, Service] = compose["services"]
    return found


@pytest.fixture(scope="module")
def ours(services: dict[str, Service]) -> dict[str, Service]:
    """The services that run Roost."""
    return {name: service for name, service in services.items() if service["image"].startswith("roost-")}


@pytest.fixture(scope="module")
def lasting(services: dict[str, Service]) -> dict[str, Service]:
    """The services that run until they are stopped: all but `migrate`."""
    return {name: service for name, service in services.items() if service["restart"] != "no"}


def _filled(value: str, given: Mapping[str, str]) -> str:
    """Compose's interpolation, as far as the file uses it: `${NAME:-default}`, `${NAME:?message}`, `$$`."""

    def fill(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name, kind, rest = found["name"], found["kind"], found["rest"]
        return given.get(name) or (rest if kind == ":-" else pytest.fail(f"{name}: {rest}"))

    return re.sub(r"\$\$|\$\{(?P<name>\w+)(?P<kind>:[-?])(?P<rest>[^}]*)\}", fill, value)


def _seconds(duration: str) -> float:
    unit = {"s": 1.0, "m": 60.0}
    return float(duration[:-1]) * unit[duration[-1]]


def test_the_file_obeys_the_compose_specification(compose: dict[str, Any]) -> None:
    schema = json.loads(
        (resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_text()
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    problems = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(compose)]
    assert problems == []


def test_the_same_pieces_run_as_in_the_embedded_stack(services: dict[str, Service]) -> None:
    expected = {
        "postgres",
        "valkey",
        "migrate",
        "api",
        "worker-cpu",
        "worker-gpu",
        "chores",
        "feeder",
        "sender",
        "beat",
        "flower",
    }
    assert set(services) == expected


def test_every_command_is_one_that_roost_understands(ours: dict[str, Service]) -> None:
    assert isinstance(main, click.Group)
    for service in ours.values():
        name, *arguments = service["command"]
        command = main.commands[name]
        command.make_context(name, list(arguments), resilient_parsing=False)


def test_every_environment_name_is_a_setting(ours: dict[str, Service]) -> None:
    known = {f"ROOST_{name.upper()}" for name in Settings.model_fields} | FOREIGN
    assert {name for service in ours.values() for name in service["environment"]} <= known


def test_every_value_is_one_that_the_settings_accept(ours: dict[str, Service], monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict.fromkeys(SECRETS, "ada:secret")
    for service in ours.values():
        with monkeypatch.context() as environment:
            for name, value in service["environment"].items():
                environment.setenv(name, _filled(value, given))
            settings = Settings()
        assert settings.database_url.startswith("postgresql+psycopg://roost:")
        assert settings.doorbell


def test_a_secret_that_is_missing_stops_compose_and_names_itself(text: str) -> None:
    for secret in SECRETS:
        uses = re.findall(rf"\$\{{{secret}[^}}]*\}}", text)
        assert uses, secret
        assert all(use.startswith(f"${{{secret}:?set {secret}") for use in uses), secret


def test_the_example_names_every_secret_and_gives_none(text: str) -> None:
    example = dict(
        line.split("=", 1) for line in (FOLDER / "env.example").read_text().splitlines() if line[:1].isalpha()
    )
    assert example == dict.fromkeys(SECRETS, "")


def test_every_variable_of_the_file_is_in_the_example(text: str) -> None:
    example = (FOLDER / "env.example").read_text()
    versions = {"ROOST_VERSION", "POSTGRES_VERSION", "VALKEY_VERSION"}
    variables = set(re.findall(r"\$\{(\w+)", text)) - versions
    assert {name for name in variables if not re.search(rf"^#?{name}=", example, re.MULTILINE)} == set()


def test_every_lasting_service_has_a_health_check_a_restart_policy_and_time_to_stop(
    lasting: dict[str, Service],
) -> None:
    for name, service in lasting.items():
        assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}, name
        assert service["restart"] == "unless-stopped", name
    assert {"postgres", "valkey", "api", "worker-cpu", "worker-gpu", "chores", "beat", "feeder", "sender"} <= {
        name for name, service in lasting.items() if "stop_grace_period" in service
    }


def test_our_health_checks_exist_and_fit_the_command(ours: dict[str, Service], lasting: dict[str, Service]) -> None:
    for name in set(ours) & set(lasting):
        *start, check = ours[name]["healthcheck"]["test"]
        assert start == ["CMD", "python", "-m", "deploy.health"], name
        assert check in CHECKS, name
        assert check == ours[name]["command"][0], name


def test_no_service_is_root_or_may_become_it(services: dict[str, Service]) -> None:
    for name, service in services.items():
        assert service["user"].partition(":")[0] not in {"", "0", "root"}, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name


def test_what_uses_the_database_waits_for_the_migration(ours: dict[str, Service]) -> None:
    assert ours["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in {"api", "worker-cpu", "worker-gpu", "chores", "feeder", "sender"}:
        assert ours[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}, name


def test_only_the_api_is_published_and_on_loopback(services: dict[str, Service]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert {name: [_filled(port, {}) for port in ports] for name, ports in published.items()} == {
        "api": ["127.0.0.1:8080:8080"],
    }


def test_database_and_broker_have_no_way_out(compose: dict[str, Any], services: dict[str, Service]) -> None:
    assert compose["networks"]["inside"] == {"internal": True}
    for name in ("postgres", "valkey", "migrate", "chores", "beat"):
        assert services[name]["networks"] == ["inside"], name


def test_what_must_outlive_a_container_is_on_a_named_volume(
    compose: dict[str, Any], services: dict[str, Service]
) -> None:
    assert services["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    assert services["valkey"]["volumes"] == ["valkey:/data"]
    mounted = {volume.partition(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert mounted == set(compose["volumes"])


def test_all_who_read_and_write_blobs_have_the_same_store(ours: dict[str, Service]) -> None:
    """A worker that sees another store would fail jobs whose inputs are in it."""
    store = "blobs:/var/lib/roost/blobs"
    having = {name for name, service in ours.items() if store in service.get("volumes", [])}
    assert having >= {"api", "feeder", "worker-cpu", "worker-gpu"}
    assert {service["environment"]["ROOST_DATA_DIR"] for service in ours.values()} == {"/var/lib/roost"}


def test_a_worker_has_longer_to_stop_than_its_own_grace(ours: dict[str, Service]) -> None:
    grace = Settings.model_fields["shutdown_s"].default
    for name in ("worker-cpu", "worker-gpu"):
        assert _seconds(ours[name]["stop_grace_period"]) > grace, name


def test_the_gpu_worker_starts_only_when_asked_for_and_reserves_its_gpu(ours: dict[str, Service]) -> None:
    assert {name for name, service in ours.items() if "profiles" in service} == {"worker-gpu"}
    (device,) = ours["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    assert [_filled(number, {}) for number in device["device_ids"]] == ["0"]


def test_all_workers_share_one_ledger_that_belongs_to_their_user_alone(
    compose: dict[str, Any], ours: dict[str, Service]
) -> None:
    workers = {name: service for name, service in ours.items() if service["command"] == ["worker"]}
    assert set(workers) == {"worker-cpu", "worker-gpu"}
    for name, service in workers.items():
        assert f"ledger:{service['environment']['ROOST_LEDGER_DIR']}" in service["volumes"], name
    user, group = workers["worker-gpu"]["user"].split(":")
    options = compose["volumes"]["ledger"]["driver_opts"]
    assert options["type"] == "tmpfs"
    assert {f"uid={user}", f"gid={group}", "mode=0700"} <= set(options["o"].split(","))


def test_what_a_worker_exports_is_kept_where_it_may_write(ours: dict[str, Service]) -> None:
    for name in ("worker-cpu", "worker-gpu"):
        folders = [volume.partition(":")[2] for volume in ours[name]["volumes"]]
        cache = Path(ours[name]["environment"]["XDG_CACHE_HOME"])
        assert any(cache.is_relative_to(folder) for folder in folders), name


def test_only_workers_are_built_with_torch(ours: dict[str, Service]) -> None:
    with_torch = {name for name, service in ours.items() if service["build"]["dockerfile"] != "deploy/Dockerfile.api"}
    assert with_torch == {"worker-cpu", "worker-gpu"}


def test_every_dockerfile_of_the_file_exists(ours: dict[str, Service]) -> None:
    for service in ours.values():
        build = service["build"]
        assert (FOLDER / build["context"] / build["dockerfile"]).is_file()


def test_the_schedule_runs_once(ours: dict[str, Service]) -> None:
    assert [name for name, service in ours.items() if service["command"] == ["beat"]] == ["beat"]


def test_every_image_is_pinned_by_a_version(services: dict[str, Service]) -> None:
    for name, service in services.items():
        tag = _filled(service["image"], {}).rpartition(":")[2]
        assert re.match(r"\d+\.\d+", tag), name


@pytest.fixture
def composed_valkey(services: dict[str, Service], tmp_path: Path) -> Iterator[redis.Redis]:
    """The broker as the file starts it: the same shell, the same line, on a free port and in a folder of the test."""
    service = services["valkey"]
    shell, flag, line = service["command"]
    port = chosen(0)
    script = _filled(line, {}).replace("--dir /data", f"--dir {tmp_path} --bind 127.0.0.1 --port {port}")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "valkey-server").symlink_to(find_program())
    environment = {"VALKEY_PASSWORD": "s3cret", "PATH": f"{programs}:{os.environ['PATH']}"}
    with subprocess.Popen([shell, flag, script], env=environment, stdout=subprocess.DEVNULL) as process:
        retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.05), 100)
        client = redis.Redis(port=port, password="s3cret", retry=retry, retry_on_error=[redis.ConnectionError])
        try:
            client.ping()
            yield client
        finally:
            client.close()
            process.terminate()
            process.wait(timeout=10)


def test_the_broker_keeps_what_it_is_given(composed_valkey: redis.Redis) -> None:
    expected = {
        "maxmemory-policy": "noeviction",
        "maxmemory": str(512 * 2**20),
        "appendonly": "yes",
        "appendfsync": "everysec",
    }
    assert {name: composed_valkey.config_get(name)[name] for name in expected} == expected


def test_the_broker_wants_its_password(composed_valkey: redis.Redis) -> None:
    port = composed_valkey.get_connection_kwargs()["port"]
    with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
