"""`roost wait`: until jobs have ended, with a bar for each."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

import click
from rich.progress import Progress

from deploy.commands.connecting import as_json, reach, to_server, told_in_a_line
from deploy.commands.following import draw, state_of
from deploy.commands.showing import bars, say
from roost import AsyncClient, JobInfo, StillRunning


@click.command()
@click.argument("ids", nargs=-1, required=True)
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after that long; the jobs go on.")
@to_server
@as_json
def wait(ids: tuple[str, ...], timeout: float | None, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Wait until the jobs IDS have ended; exit status 1 unless all of them succeeded."""
    with told_in_a_line(lambda: "the jobs go on"), bars() as drawn:
        reach(url, api_key)
        jobs = asyncio.run(_wait(ids, timeout, url, api_key, drawn, quiet=as_json))
    if as_json:
        click.echo(json.dumps([job.fields for job in jobs]))
    sys.exit(0 if all(job.status == "succeeded" for job in jobs) else 1)


async def _wait(
    ids: Sequence[str], seconds: float | None, url: str | None, api_key: str | None, drawn: Progress, *, quiet: bool
) -> list[JobInfo]:
    async with AsyncClient(url, api_key) as client:
        found = [await client.job(id_) for id_ in ids]

        async def one(place: int) -> JobInfo:
            job = found[place]
            if drawn.disable:
                await job.wait()
            else:
                bar = drawn.add_task(f"{job.id} {job.info.model}", total=job.info.items, state=job.status)
                async for event in job.events():
                    draw(drawn, bar, event)
            if not quiet:
                error = job.info.error or {}
                said = f": {error['message']}" if "message" in error else ""
                say(drawn, f"{job.id}  {state_of(job.info)}{said}")
            return job.info

        try:
            async with asyncio.timeout(seconds):
                return await asyncio.gather(*(one(place) for place in range(len(found))))
        except TimeoutError:
            raise StillRunning(next(job.info for job in found if not job.info.ended)) from None
