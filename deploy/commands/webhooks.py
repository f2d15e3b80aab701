"""`roost webhooks`: who is told of events, and what was told to whom. `roost sender` is what sends."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from deploy.commands.connecting import as_json, to_server, told_in_a_line
from deploy.commands.showing import age, show
from deploy.commands.webhook_deliveries import connected, deliveries, redeliver, test

_event = click.option(
    "--event", "events", multiple=True, help="Such as job.failed or batch.*; may be given repeatedly."
)
_secret = click.option("--secret", metavar="WHSEC", help="One of yours: whsec_ and 24 to 64 bytes in base64.")


@click.group()
def webhooks() -> None:
    """Have URLs told of what becomes of your jobs, batches and backfills, and look at what was told."""


for _command in (deliveries, redeliver, test):
    webhooks.add_command(_command)


@webhooks.command()
@click.argument("target", metavar="URL")
@_event
@click.option("--description", default="", help="What it is for.")
@click.option("--inline", is_flag=True, help="Small results go along with events of jobs.")
@_secret
@to_server
@as_json
def create(
    target: str,
    events: tuple[str, ...],
    description: str,
    inline: bool,
    secret: str | None,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Have URL told of events, of all without --event. Prints the endpoint's id and, once, its secret."""
    with told_in_a_line(), connected(url, api_key) as client:
        made = client.webhooks.create(
            target, events=events or None, description=description, inline=inline, secret=secret
        )
    _with_secret(made, as_json=as_json)


@webhooks.command("list")
@click.option("--most", default=100, show_default=True, type=click.IntRange(1), help="At most so many.")
@to_server
@as_json
def listing(most: int, url: str | None, api_key: str | None, as_json: bool) -> None:
    """List endpoints, newest first."""
    with told_in_a_line(), connected(url, api_key) as client:
        found = client.webhooks.list(most=most)
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [(one["id"], one["url"], " ".join(one["events"]), health(one), age(_at(one["created_at"]))) for one in found]
    show(("id", "url", "events", "state", "age"), rows)


@webhooks.command("show")
@click.argument("webhook_id", metavar="ID")
@to_server
@as_json
def look(webhook_id: str, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Show the endpoint ID, and how it does."""
    with told_in_a_line(), connected(url, api_key) as client:
        _tell(client.webhooks.get(webhook_id), as_json=as_json)


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@click.option("--to", metavar="URL", help="Where events go from now on, those that wait among them.")
@_event
@click.option("--description", help="What it is for.")
@click.option("--inline/--no-inline", default=None, help="Whether small results go along.")
@to_server
@as_json
def update(
    webhook_id: str,
    to: str | None,
    events: tuple[str, ...],
    description: str | None,
    inline: bool | None,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Change what is named of the endpoint ID."""
    with told_in_a_line(), connected(url, api_key) as client:
        changed = client.webhooks.update(
            webhook_id, url=to, events=events or None, description=description, inline=inline
        )
        _tell(changed, as_json=as_json)


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@_secret
@to_server
@as_json
def rotate(webhook_id: str, secret: str | None, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Sign with a new secret, which is printed once; for 24 hours the one before signs, too."""
    with told_in_a_line(), connected(url, api_key) as client:
        _with_secret(client.webhooks.rotate(webhook_id, secret=secret), as_json=as_json)


@webhooks.command("secret")
@click.option("--rotate", is_flag=True, help="Make another one; the one before signs nothing more.")
@to_server
@as_json
def own_secret(rotate: bool, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Print what signs the webhooks of jobs that name a URL and no secret."""
    with told_in_a_line(), connected(url, api_key) as client:
        found = client.webhooks.rotate_own_secret() if rotate else client.webhooks.own_secret()
    click.echo(json.dumps(found) if as_json else found["secret"])


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@to_server
def enable(webhook_id: str, url: str | None, api_key: str | None) -> None:
    """Tell the endpoint ID of what happens from now on."""
    with told_in_a_line(), connected(url, api_key) as client:
        click.echo(client.webhooks.enable(webhook_id)["status"])


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@to_server
def disable(webhook_id: str, url: str | None, api_key: str | None) -> None:
    """Send the endpoint ID nothing more; what waits for it is dropped, and can be redelivered."""
    with told_in_a_line(), connected(url, api_key) as client:
        click.echo(client.webhooks.disable(webhook_id)["status"])


@webhooks.command()
@click.argument("webhook_id", metavar="ID")
@to_server
def delete(webhook_id: str, url: str | None, api_key: str | None) -> None:
    """Forget the endpoint ID and its deliveries."""
    with told_in_a_line(), connected(url, api_key) as client:
        click.echo(f"deleted {client.webhooks.delete(webhook_id)['id']}")


def health(endpoint: dict[str, Any]) -> str:
    """How an endpoint does, in a word or a few."""
    if endpoint["status"] == "disabled":
        return f"disabled: {endpoint['disabled_why']}"
    return "failing" if endpoint["failing_since"] else "enabled"


def _with_secret(endpoint: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(endpoint))
        return
    click.echo(endpoint["id"])
    click.echo(endpoint["secret"])
    click.echo("The secret is told only now; receivers verify with it.", err=True)


def _tell(endpoint: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(endpoint))
        return
    names = ("id", "url", "events", "inline", "description", "failing_since", "old_secret_until", "created_at")
    cells = {**endpoint, "events": " ".join(endpoint["events"])}
    rows = [(name, cells[name]) for name in names if cells[name] not in (None, "")]
    show(("endpoint", ""), [*rows, ("state", health(endpoint))])


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
