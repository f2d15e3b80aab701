"""`roost dead`: why jobs have failed, and trying them again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from catalog.terms import Lane, Verb
from deploy.commands.connecting import QUICK_S, as_json, to_server, told_in_a_line
from deploy.commands.showing import age, show
from roost import Client

_NAMES = ("code", "model", "verb", "jobs", "last", "example", "")
_REFUSED = ("id", "reason")


@click.group()
def dead() -> None:
    """See why jobs have failed, and try them again."""


def filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose among failed jobs."""
    for option in (
        click.option("--until", metavar="TIME", help="Only those that failed before this time."),
        click.option("--since", metavar="TIME", help="Only those that failed from this time on: 2026-12-01T00:00:00Z."),
        click.option("--lane", type=click.Choice([lane.value for lane in Lane]), help="Only those of this lane."),
        click.option("--verb", type=click.Choice([verb.value for verb in Verb]), help="Only those of this verb."),
        click.option("--model", help="Only those of this model."),
        click.option("--code", help="Only those with this error code."),
    ):
        command = option(command)
    return command


@dead.command("list")
@filtered
@to_server
@as_json
def listing(url: str | None, api_key: str | None, as_json: bool, **filters: Any) -> None:
    """List the reasons, those of the most jobs first. `roost jobs --error CODE` lists the jobs."""
    with told_in_a_line(), Client(url, api_key, patience_s=QUICK_S) as client:
        found = client.dead.groups(**filters)
    if as_json:
        click.echo(json.dumps(found))
        return
    show(_NAMES, [_row(group) for group in found])


@dead.command()
@click.argument("ids", nargs=-1)
@filtered
@click.option("--all", "everything", is_flag=True, help="All failed jobs, whatever the reason.")
@click.option("--killers", is_flag=True, help="Those, too, that ended their workers. Each is tried alone.")
@to_server
@as_json
def redrive(
    ids: tuple[str, ...],
    everything: bool,
    killers: bool,
    url: str | None,
    api_key: str | None,
    as_json: bool,
    **filters: Any,
) -> None:
    """Try failed jobs again: those of IDS, or all that match."""
    chosen = [bool(ids), any(value is not None for value in filters.values()), everything]
    if sum(chosen) != 1:
        raise click.UsageError("Say which: ids, or options such as --code, or --all; one of the three.")
    if ids and killers:
        raise click.UsageError("--killers goes with options or --all; a job named by its id is tried whatever it did.")
    done: list[str] = []
    refused: list[dict[str, str]] = []
    with told_in_a_line(), Client(url, api_key, patience_s=QUICK_S) as client:
        if ids:
            found = client.dead.redrive(list(ids))
            done, refused = found["jobs"], found["refused"]
        else:
            more, after = True, None
            while more:
                # Beyond those that were tried again: what has failed once more by now would be the oldest.
                found = client.dead.redrive(killers=killers, after=after, **filters)
                done += found["jobs"]
                # Where the limits let in no more, the next one is refused and says when to come again.
                more, after = found["has_more"], found["last_id"]
    if as_json:
        click.echo(json.dumps({"redriven": len(done), "jobs": done, "refused": refused}))
        return
    click.echo(f"{len(done)} jobs are tried again")
    if refused:
        show(_REFUSED, [(one["id"], one["reason"]) for one in refused])


def _row(group: dict[str, Any]) -> tuple[object, ...]:
    last = age(datetime.fromisoformat(group["last_at"]))
    mark = "ended its worker" if group["killed_workers"] else ""
    return (group["code"], group["model"], group["verb"], group["jobs"], last, group["example"], mark)
