"""`roost jobs`: which jobs a server has, now or as they change."""

from __future__ import annotations

import json
import time

import click

from catalog.terms import Lane, Verb
from deploy.commands.connecting import QUICK_S, as_json, to_server, told_in_a_line
from deploy.commands.following import state_of
from deploy.commands.showing import age, lines, show
from roost import Client, JobInfo
from tasks.jobs import State

_NAMES = ("id", "state", "verb", "model", "items", "age")
FOLLOW_S = 1.0


@click.command()
@click.option("--status", type=click.Choice([state.value for state in State]), help="Only those in this state.")
@click.option("--verb", type=click.Choice([verb.value for verb in Verb]), help="Only those of this verb.")
@click.option("--model", help="Only those of this model.")
@click.option("--tag", help="Only those with this tag.")
@click.option("--lane", type=click.Choice([lane.value for lane in Lane]), help="Only those of this lane.")
@click.option("--error", help="Only failed ones with this error code.")
@click.option("--since", metavar="TIME", help="Only those created from this time on: 2026-12-01T00:00:00Z.")
@click.option("--until", metavar="TIME", help="Only those created before this time.")
@click.option("--most", default=20, show_default=True, type=click.IntRange(1), help="At most so many.")
@click.option("--follow", is_flag=True, help="Go on, with a line for each job that comes or changes.")
@to_server
@as_json
def jobs(
    status: str | None,
    verb: str | None,
    model: str | None,
    tag: str | None,
    lane: str | None,
    error: str | None,
    since: str | None,
    until: str | None,
    most: int,
    follow: bool,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List jobs, newest first. With --follow in the order in which they change; `--json` gives a line for each then."""
    filters = {"status": status, "verb": verb, "model": model, "tag": tag, "lane": lane}
    filters |= {"error": error, "since": since, "until": until}
    with told_in_a_line(), Client(url, api_key, patience_s=QUICK_S) as client:
        if not follow:
            found = [job.info for job in client.jobs(most=most, **filters)]
            if as_json:
                click.echo(json.dumps([job.fields for job in found]))
            else:
                show(_NAMES, [_row(job) for job in found])
            return
        seen: dict[str, JobInfo] = {}
        while True:
            found = [job.info for job in client.jobs(most=most, **filters)]
            for job in reversed(changed(found, seen)):
                click.echo(json.dumps(job.fields) if as_json else lines([_row(job)])[0])
            seen = {job.id: job for job in found}
            time.sleep(FOLLOW_S)


def changed(found: list[JobInfo], seen: dict[str, JobInfo]) -> list[JobInfo]:
    """Those that are new, or in another state than when they were seen."""
    return [job for job in found if (old := seen.get(job.id)) is None or state_of(old) != state_of(job)]


def _row(job: JobInfo) -> tuple[object, ...]:
    return (job.id, state_of(job), job.verb, job.model, job.items, age(job.moment("created_at")))
