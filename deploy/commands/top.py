"""`roost top`: a live view of workers, models and what waits."""

from __future__ import annotations

import json
import time
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from deploy.commands.connecting import QUICK_S, as_json, to_server, told_in_a_line
from deploy.commands.standing import drawn, printed, standing
from roost import Client, RoostError


@click.command()
@click.option("--once", is_flag=True, help="Show it once and end; so it is where there is no terminal.")
@click.option("--interval", default=2.0, show_default=True, type=click.FloatRange(0.1), help="Seconds between looks.")
@to_server
@as_json
def top(once: bool, interval: float, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Show the workers, the models on them, and the queues, as of the last heartbeats. Ctrl-C ends it."""
    console = Console()
    with told_in_a_line(), Client(url, api_key, timeout_s=10.0, patience_s=QUICK_S) as client:
        found = _look(client)
        if as_json:
            click.echo(json.dumps(found))
        elif once or not console.is_terminal:
            for line in printed(found):
                click.echo(line)
        else:
            _live(client, found, interval, console)


def _live(client: Client, found: dict[str, Any], interval: float, console: Console) -> None:
    with Live(drawn(found), console=console, screen=True, auto_refresh=False) as live:
        note = ""
        while True:
            live.update(drawn(found, note), refresh=True)
            time.sleep(interval)
            try:
                found, note = _look(client), ""
            except RoostError as error:
                note = f"as it was: {error.message}"


def _look(client: Client) -> dict[str, Any]:
    return standing(client.residency(), client.text("/metrics"))
