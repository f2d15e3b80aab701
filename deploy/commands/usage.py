"""`roost usage`: what was used, of which model or on which day."""

from __future__ import annotations

import json

import click

from deploy.commands.connecting import QUICK_S, as_json, to_server, told_in_a_line
from deploy.commands.showing import show
from roost import Client
from tasks.store.usage import By

_NAMES = ("jobs", "jobs_failed", "items", "items_failed", "tokens", "device_ms")


@click.command()
@click.option("--since", metavar="DAY", help="The first day, as 2026-11-01; without it 30 days before the last.")
@click.option("--until", metavar="DAY", help="The last day; without it today.")
@click.option("--by", type=click.Choice([by.value for by in By]), default=By.MODEL.value, show_default=True)
@click.option("--tenant", help="Another tenant, or `*` for all; needs a key with the scope admin.")
@to_server
@as_json
def usage(
    since: str | None,
    until: str | None,
    by: str,
    tenant: str | None,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Report jobs, items, tokens and milliseconds of devices, of jobs that have ended."""
    given = {"since": since, "until": until, "by": by, "tenant": tenant}
    asked = {name: value for name, value in given.items() if value is not None}
    with told_in_a_line(), Client(url, api_key, patience_s=QUICK_S) as client:
        found = client.get("/v1/usage", asked)
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [(line["tenant"], line[by], *(_shown(line[name]) for name in _NAMES)) for line in found["data"]]
    show(("tenant", by, *_NAMES), rows)


def _shown(value: float) -> int:
    return round(value)
