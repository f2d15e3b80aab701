"""`roost keys`: who may use a server, from the machine that runs it. It speaks to the database, not to the API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import isfinite, nan
from typing import Any

import click
from pydantic import ValidationError

from catalog.errors import RoostError, suggestion
from deploy.commands.connecting import as_json
from deploy.commands.showing import show
from tasks.api_keys import HINT_CHARS, PREFIX, ApiKey, Scope, Tenant, hash_of, new_key, tenant_name
from tasks.db import Database
from tasks.errors import InvalidRequest
from tasks.prepare import job_id
from tasks.settings import Settings, complaint
from tasks.store import api_keys as store
from tasks.tenant_limits import NAMES, parsed

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_LONGEST_S = 2**31 - 1  # as many as the column holds


@click.group()
def keys() -> None:
    """Make and revoke the keys of callers, and say what a tenant may. Needs the database of the server."""


@keys.command()
@click.option("--tenant", default="default", show_default=True, help="Whose jobs and files it gives; made if new.")
@click.option("--label", default="", help="What it is for.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What it is good for; may be given several times. Without one: read and write.",
)
@click.option("--expires", metavar="TIME", help="When it ends, such as 30d, 12h or 90m from now. Without: never.")
@as_json
def create(tenant: str, label: str, scopes: tuple[str, ...], expires: str | None, as_json: bool) -> None:
    """Make a key and show it, once."""
    key, now = new_key(), datetime.now(UTC)
    with _told():
        row = ApiKey(
            id=job_id(now.timestamp()),
            tenant=Tenant(tenant_name(tenant), now),
            label=label,
            hint=key[:HINT_CHARS],
            scopes=frozenset(map(Scope, scopes or ("read", "write"))),
            created_at=now,
            expires_at=None if expires is None else now + _span(expires),
        )
        with _database() as database:
            database.run(store.create, row, hash_of(key), now)
    if as_json:
        click.echo(json.dumps({**_fields(row), "key": key}))
        return
    click.echo(key)
    click.echo("It is kept as a hash and cannot be shown again.", err=True)


@keys.command("list")
@click.option("--tenant", help="Only those of this tenant.")
@as_json
def listing(tenant: str | None, as_json: bool) -> None:
    """List keys, without what is secret of them."""
    with _told(), _database() as database:
        found = database.run(store.keys, tenant)
    if as_json:
        click.echo(json.dumps([_fields(key) for key in found]))
        return
    now = datetime.now(UTC)
    show(("key", "tenant", "label", "scopes", "state", "last used", "id"), [_row(key, now) for key in found])


@keys.command()
@click.argument("key")
def revoke(key: str) -> None:
    """Revoke KEY: its id, or how it begins as `list` shows it. It works for five seconds at most."""
    with _told(), _database() as database:
        id_ = database.run(store.revoke, key[:HINT_CHARS] if key.startswith(PREFIX) else key, _now())
    click.echo(f"revoked {id_}")


@keys.command()
@as_json
def tenants(as_json: bool) -> None:
    """List tenants, with what they may if that differs from the settings."""
    with _told(), _database() as database:
        found = database.run(store.tenants)
    if as_json:
        click.echo(json.dumps([_tenant(one) for one in found]))
        return
    rows = [
        (one.name, "disabled" if one.disabled_at else "enabled", _limits(one), one.retention_s or "") for one in found
    ]
    show(("tenant", "state", "limits", "retention_s"), rows)


@keys.command()
@click.argument("tenant")
@click.argument("limits", nargs=-1, metavar="[NAME=VALUE]...")
def limit(tenant: str, limits: tuple[str, ...]) -> None:
    """Say what TENANT may: requests_per_s, burst, open_jobs, items_per_day, tokens_per_day; retention_s of its jobs.

    0 is no limit, and a name without a value (`burst=`) goes by the settings again. What is not named stays.
    """
    with _told():
        given = dict(_limit(one) for one in limits)
        with _database() as database:
            known = database.run(store.tenant, tenant)
            retention = given.pop("retention_s", known.retention_s)
            merged = {name: value for name, value in {**known.limits, **given}.items() if value is not None}
            parsed(merged)
            database.run(store.limit, tenant, merged, None if retention is None else int(retention))
            click.echo(f"{tenant}: {_limits(database.run(store.tenant, tenant)) or 'as the settings say'}")


@keys.command()
@click.argument("tenant")
def disable(tenant: str) -> None:
    """Have none of the keys of TENANT work. Its jobs go on."""
    _able(tenant, disabled=True)


@keys.command()
@click.argument("tenant")
def enable(tenant: str) -> None:
    """Let the keys of TENANT work again."""
    _able(tenant, disabled=False)


def _able(tenant: str, *, disabled: bool) -> None:
    with _told(), _database() as database:
        database.run(store.disable, tenant, _now(), disabled=disabled)
    click.echo(f"{tenant} is {'disabled' if disabled else 'enabled'}")


def _span(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if not found:
        raise InvalidRequest("--expires must be a number and m, h or d, as in 30d.", param="expires")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _limit(text: str) -> tuple[str, float | None]:
    name, there, value = text.partition("=")
    known = [*NAMES, "retention_s"]
    if not there or name not in known:
        hint = suggestion(name, known, f"; there are: {', '.join(known)}.")
        raise InvalidRequest(f"{text[:100]!r} is no limit: write NAME=VALUE{hint}", param=name[:100])
    try:
        number = float(value) if value else None
    except ValueError:
        number = nan
    if number is not None and not isfinite(number):
        raise InvalidRequest(f"{name!r} must be a number, not {value[:50]!r}.", param=name)
    if name == "retention_s" and number is not None and (number < 60 or number != int(number)):
        raise InvalidRequest("'retention_s' must be at least 60, in whole seconds.", param=name)
    if name == "retention_s" and number is not None and number > _LONGEST_S:
        raise InvalidRequest(f"'retention_s' must be at most {_LONGEST_S}.", param=name)
    return name, number


def _limits(tenant: Tenant) -> str:
    return " ".join(f"{name}={value:g}" for name, value in sorted(tenant.limits.items()))


def _row(key: ApiKey, now: datetime) -> tuple[object, ...]:
    try:
        key.check(now)
        state = "good"
    except RoostError as error:
        state = error.code.rpartition("_")[2]
    used = f"{key.used_at:%Y-%m-%d %H}h" if key.used_at else "never"
    return (f"{key.hint}…", key.tenant.name, key.label, " ".join(sorted(key.scopes)), state, used, key.id)


def _fields(key: ApiKey) -> dict[str, Any]:
    return {
        "id": str(key.id),
        "tenant": key.tenant.name,
        "label": key.label,
        "hint": key.hint,
        "scopes": sorted(key.scopes),
        "created_at": key.created_at.isoformat(),
        "expires_at": key.expires_at and key.expires_at.isoformat(),
        "revoked_at": key.revoked_at and key.revoked_at.isoformat(),
        "used_at": key.used_at and key.used_at.isoformat(),
    }


def _tenant(tenant: Tenant) -> dict[str, Any]:
    disabled = tenant.disabled_at and tenant.disabled_at.isoformat()
    limits, retention_s = dict(tenant.limits), tenant.retention_s
    return {"name": tenant.name, "limits": limits, "retention_s": retention_s, "disabled_at": disabled}


def _now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def _told() -> Iterator[None]:
    """End with one line for what goes wrong."""
    try:
        yield
    except ValidationError as error:
        raise click.ClickException(complaint(error)) from None
    except RoostError as error:
        raise click.ClickException(error.message) from None


@contextmanager
def _database() -> Iterator[Database]:
    """The database of ROOST_DATABASE_URL, or of the stack that runs in the data folder."""
    settings = Settings()
    found = Database(settings.database_url or _embedded(settings), 1, name="roost keys")
    try:
        yield found
    finally:
        found.close()


def _embedded(settings: Settings) -> str:
    # Here, because an image of the API alone has none of it.
    from deploy.embedded import lock, report
    from deploy.embedded.postgres import PostgresServer

    folder = settings.data_dir.absolute()
    running = report.read(folder) if lock.holder(folder / "roost.lock") else None
    where = next((piece.where for piece in running.pieces if piece.name == "postgres"), "") if running else ""
    if not where:
        raise click.ClickException(
            f"nothing runs in {folder}: start it with `roost up`, or set ROOST_DATABASE_URL to the server's database"
        )
    port = int(where.rpartition(":")[2])
    return PostgresServer(folder / "postgres", folder / "logs" / "postgres.log", port=port).url()
