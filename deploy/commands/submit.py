"""`roost submit`: a job from the command line, waited for or not; with `--run` any number of items, in parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from catalog.terms import Lane, Verb
from deploy.commands import outcome
from deploy.commands.connecting import as_json, reach, to_server, told_in_a_line
from deploy.commands.following import followed
from deploy.commands.given import items_of, options_of, schema_of
from deploy.commands.showing import bars, say, show
from roost import Client, Item, Job, Progress, Result


@click.command()
@click.argument("verb", type=click.Choice([verb.value for verb in Verb]))
@click.argument("model")
@click.argument("texts", nargs=-1)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A .jsonl has an item in each line, a .txt a text in each line; any other is an item: an image, a document.",
)
@click.option("--query", help="Of score: what the items are scored against.")
@click.option("--label", "labels", multiple=True, help="Of extract: what to look for; once for each label.")
@click.option("--schema", help="Of extract: the fields to fill in, as JSON or as @FILE.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the verb (docs/verbs.md).")
@click.option("--lane", type=click.Choice([lane.value for lane in Lane]))
@click.option("--priority", type=click.IntRange(0, 9))
@click.option("--deadline", "deadline_s", type=float, metavar="SECONDS")
@click.option("--tag", "tags", multiple=True, help="A word to find the job by.")
@click.option("--webhook", metavar="URL", help="Is told when the job ends, signed with `roost webhooks secret`.")
@click.option("--key", help="An idempotency key: the same submission again leads to the same job.")
@click.option("--wait/--no-wait", default=True, help="Wait for the result, or print the job's id and come back.")
@click.option("--stream", is_flag=True, help="Of generate: print the text as it is made.")
@click.option("--run", metavar="NAME", help="Work through all items in jobs of --batch; the same name goes on.")
@click.option("--batch", default=256, show_default=True, type=click.IntRange(1), help="Of --run: items in a job.")
@to_server
@as_json
def submit(
    verb: str,
    model: str,
    texts: tuple[str, ...],
    files: tuple[Path, ...],
    query: str | None,
    labels: tuple[str, ...],
    schema: str | None,
    options: tuple[str, ...],
    wait: bool,
    stream: bool,
    run: str | None,
    batch: int,
    key: str | None,
    url: str | None,
    api_key: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Run VERB on MODEL over TEXTS (`-` reads a text from each line of standard input) and over files."""
    if not texts and not files:
        raise click.UsageError("There are no items: give texts, `-` for the lines of standard input, or --file.")
    if verb == Verb.SCORE and query is None:
        raise click.UsageError("score needs --query, what the items are scored against.")
    asked = {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in fields.items() if value},
        "query": query,
        "labels": list(labels) or None,
        "output_schema": schema_of(schema),
        "options": options_of(options),
    }
    if fields["priority"] is not None:
        asked["priority"] = fields["priority"]
    items = items_of(texts, files, sys.stdin)
    with told_in_a_line():
        reach(url, api_key)
    with Client(url, api_key) as client:
        if run is not None:
            _run(client, verb, model, items, run, batch, asked, as_json=as_json)
        elif stream:
            _stream(client, verb, model, items, key, asked)
        else:
            with told_in_a_line(lambda: UNTOLD):
                job = client.submit(verb, model, items, key=key, **asked)
            if wait:
                _wait(job, as_json=as_json)
            else:
                click.echo(json.dumps(job.info.fields) if as_json else job.id)


UNTOLD = "the server had not answered yet, and may have taken the job in: `roost jobs` tells"
"""Said of a submission that is interrupted before its job has a name."""


def _wait(job: Job, *, as_json: bool) -> None:
    with told_in_a_line(lambda: f"job {job.id} goes on; `roost wait {job.id}` waits for it, too"):
        followed(job)
        result = job.result()
    if as_json:
        click.echo(json.dumps(result.plain(), ensure_ascii=False))
    else:
        _show(result)
    if failed := result.failed:
        click.echo(f"{len(failed)} of {len(result)} items failed", err=True)
        sys.exit(1)


def _show(result: Result) -> None:
    if result.scores is not None:
        rows = [(found["rank"], f"{found['score']:.4f}", found["index"]) for found in result.scores]
        show(("rank", "score", "item"), rows)
        bad = [outcome.row(item) for item in result.failed]
        if bad:
            show(("item", "id", "error"), bad)
    elif len(result) == 1 and result[0].ok:
        click.echo(outcome.told(result[0]))
    else:
        show(("item", "id", "result"), [outcome.row(item) for item in result])


def _stream(
    client: Client, verb: str, model: str, items: Iterator[Any], key: str | None, asked: dict[str, Any]
) -> None:
    prompts = list(items)
    if verb != Verb.GENERATE or len(prompts) != 1:
        raise click.UsageError("--stream is for generate and one prompt")
    with told_in_a_line(lambda: "\nthe job was cancelled"):
        for text in client.stream(model, prompts[0], key=key, **asked):
            click.echo(text, nl=False)
            sys.stdout.flush()
    click.echo()


def _run(
    client: Client,
    verb: str,
    model: str,
    items: Iterator[Any],
    run: str,
    batch: int,
    asked: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Results in the order of the input, one in a line, while a bar tells how far it is."""
    failed = 0
    with told_in_a_line(lambda: f"stopped; the same command goes on with run {run}"), bars() as drawn:
        bar = drawn.add_task(f"{verb} {model}", total=None, state="")

        def tell(progress: Progress) -> None:
            state = f"{progress.failed} failed, {progress.per_second:.0f} items/s"
            drawn.update(bar, completed=progress.done, state=state)

        for item in client.backfill(verb, model, items, run=run, batch=batch, progress=tell, **asked):
            failed += not item.ok
            say(drawn, _line(item) if as_json else "  ".join(map(str, outcome.row(item))))
    if failed:
        click.echo(f"{failed} items failed", err=True)
        sys.exit(1)


def _line(item: Item) -> str:
    return json.dumps({"index": item.index, **item.plain()}, ensure_ascii=False)
