"""`roost`: the whole stack on one machine, or one piece of it for a container.

What only one command needs and takes long to import is imported by that command: the others start at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from catalog.errors import RoostError
from deploy import catalog_check, pieces
from deploy.broker_check import eviction_warning
from deploy.commands import WithCallers
from deploy.devices import assigned, visible_gpus
from deploy.embedded import lock, probes, report
from deploy.embedded.errors import EmbeddedError
from deploy.embedded.family import gone, started_at
from deploy.embedded.stop_request import StopRequest
from deploy.environment import shown, unknown
from deploy.models_cli import models
from tasks.settings import Settings, complaint

if TYPE_CHECKING:
    from deploy.embedded.stack import Stack

_LOCK = "roost.lock"
_NOT_RUNNING = 3


@click.group(cls=WithCallers, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Roost: a job queue service for many small models. Settings are ROOST_… variables; `roost config` lists them."""


main.add_command(models)


@main.command()
def up() -> None:
    """Start everything here and stay in the foreground; Ctrl-C stops it all."""
    from deploy.embedded.stack import Stack

    settings = _settings()
    _print_settings(settings)
    _warn_of_unknown()
    _check_catalog(settings)
    try:
        with lock.held(settings.data_dir / _LOCK):
            _run(Stack(settings, _say))
    except (EmbeddedError, pieces.UnsafeFlowerError, RoostError, PermissionError) as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait for the end.")
def down(timeout: float) -> None:
    """Stop the stack of this data folder."""
    folder = _settings().data_dir.absolute()
    pid = lock.holder(folder / _LOCK)
    if pid is None:
        click.echo(f"nothing runs in {folder}")
        return
    os.kill(pid, signal.SIGTERM)
    if not gone(pid, timeout):
        raise click.ClickException(f"the stack (pid {pid}) has not ended within {timeout:g} s")
    click.echo("stopped")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(as_json: bool) -> None:
    """Show what runs in this data folder; exit status 3 when the stack is not ready."""
    folder = _settings().data_dir.absolute()
    found = report.read(folder) if lock.holder(folder / _LOCK) else None
    if found is None:
        click.echo(json.dumps({"running": False}) if as_json else f"nothing runs in {folder}")
        sys.exit(_NOT_RUNNING)
    ready = _is_ready(found)
    if as_json:
        click.echo(json.dumps({"running": True, **found.model_dump(mode="json"), "ready": ready}, indent=2))
    else:
        for name, url in found.urls.items():
            click.echo(f"{name:<10} {url}")
        for piece in found.pieces:
            state = "running" if started_at(piece.pid) == piece.started else "ended"
            click.echo(f"{piece.name:<10} {state:<8} pid {piece.pid:<7} {piece.where or '-':<21} {piece.log}")
        click.echo("ready" if ready else "not ready")
    sys.exit(0 if ready else _NOT_RUNNING)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def config(as_json: bool) -> None:
    """List every setting with its value and where that comes from. Passwords are hidden."""
    settings = _settings()
    _warn_of_unknown()
    if as_json:
        rows = {row.variable: {"value": row.value, "source": row.source} for row in shown(settings)}
        click.echo(json.dumps(rows, indent=2))
    else:
        _print_settings(settings, described=True)


@main.command()
def migrate() -> None:
    """Bring the database to this version's tables; safe when several do it at once."""
    from migrations import migrate as migrate_database

    try:
        migrate_database(_needed("database_url"))
    except RoostError as error:
        raise click.ClickException(str(error)) from error
    click.echo("the database has this version's tables")


@main.command()
def api() -> None:
    """Become the API."""
    _become(pieces.api(_settings()))


@main.command()
def worker() -> None:
    """Become the worker of one device: ROOST_DEVICE, or the first that is there."""
    settings = _settings()
    _check_catalog(settings)
    _warn_of_eviction(settings)
    device = assigned(settings.device, visible_gpus(os.environ))[0]
    _become(pieces.worker(settings, settings.worker_name or device.name), device.environment)


@main.command()
def chores() -> None:
    """Become the worker of the service's own tasks."""
    _become(pieces.chores(_settings()))


@main.command()
def sender() -> None:
    """Become the sender of webhooks."""
    _become(pieces.sender(_settings()))


@main.command()
def feeder() -> None:
    """Become the feeder, which works batches through."""
    _become(pieces.feeder(_settings()))


@main.command()
def beat() -> None:
    """Become the clock of the sweeps."""
    settings = _settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    _become(pieces.beat(settings))


@main.command()
def flower() -> None:
    """Become Flower."""
    settings = _settings()
    try:
        environment = pieces.flower_environment(settings)
    except pieces.UnsafeFlowerError as error:
        raise click.ClickException(str(error)) from error
    _become(pieces.flower(settings), environment)


def _run(stack: Stack) -> None:
    began = time.monotonic()
    with StopRequest() as request:
        try:
            stack.start()
            if flower_url := stack.urls.get("flower"):
                _say(f"Flower at {flower_url}")
            _say(f"ready in {time.monotonic() - began:.1f} s: {stack.url} (documentation at {stack.url}/docs)")
            request.raising = False
            stack.supervisor.watch(request)
        except KeyboardInterrupt:
            _say("interrupted")
        finally:
            request.raising = True
            _say("stopping; once more to stop at once")
            try:
                killed = stack.stop()
            except KeyboardInterrupt:
                killed = stack.stop() or ["what was still running"]
            _say(f"stopped; had to kill {', '.join(killed)}" if killed else "stopped cleanly")


def _is_ready(found: report.Report) -> bool:
    host, _, port = found.urls.get("api", "").removeprefix("http://").rpartition(":")
    return found.ready and probes.http_status(host.strip("[]"), int(port), "/readyz", timeout_s=5.0) == 200


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        raise click.ClickException(complaint(error)) from error


def _needed(name: str) -> str:
    value = str(getattr(_settings(), name))
    if not value:
        raise click.ClickException(f"set ROOST_{name.upper()}")
    return value


def _become(argv: tuple[str, ...], environment: Mapping[str, str] | None = None) -> None:
    """Turn this process into another program, which then gets the signals itself."""
    sys.stdout.flush()
    os.execve(argv[0], argv, {**os.environ, **(environment or {})})  # noqa: S606 - a shell would be in the way of signals


def _warn_of_eviction(settings: Settings) -> None:
    if warning := eviction_warning(settings.redis_url):
        _warn(warning)


def _check_catalog(settings: Settings) -> None:
    try:
        for problem in catalog_check.checked(settings):
            _warn(catalog_check.told(problem))
    except RoostError as error:
        raise click.ClickException(str(error)) from error


def _warn_of_unknown() -> None:
    for line in unknown(os.environ):
        _warn(line)


def _warn(line: str) -> None:
    click.secho(f"WARNING: {line}", fg="yellow", err=True)


def _print_settings(settings: Settings, *, described: bool = False) -> None:
    here = {name: "started here" for name in ("database_url", "broker_url") if not getattr(settings, name)}
    for row in shown(settings, here):
        line = f"{row.variable:<26} {row.value or '(empty)':<24} {row.source:<12}"
        click.echo(f"{line} {row.description}".rstrip() if described else line.rstrip())
    if not described:
        click.echo()


def _say(line: str) -> None:
    # Whoever read our output may be gone; that must not keep the stack from being stopped.
    with contextlib.suppress(BrokenPipeError):
        click.echo(line)


if __name__ == "__main__":
    main()
