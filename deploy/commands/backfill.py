"""`roost backfill`: documents through one verb or a chain, worked through by the server."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from deploy.commands.connecting import as_json, reach, to_server, told_in_a_line
from deploy.commands.given import options_of
from deploy.commands.local_documents import found, manifest, sent
from deploy.commands.showing import age, bars, duration, show
from roost import Client
from roost.document_backfills import ENDED

_STEPS = ("parse", "chunk", "encode", "score", "extract", "generate")
_FIELDS = {"score": ("query",), "generate": ("prompt",)}
"""What is beside the options of a step, and given as if it were one."""

_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
LOOK_S = 1.0


@click.group()
def backfill() -> None:
    """Work through many documents: parse them, cut them into chunks, encode them, and have the rows as a file."""


@backfill.command()
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--step",
    "steps",
    multiple=True,
    required=True,
    metavar="STEP",
    help=f"One of {', '.join(_STEPS)}, its model after a colon and options after spaces, in their order: "
    "--step parse:docling --step 'chunk size=300' --step encode:MODEL",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the rows go: .jsonl or .parquet. Failures go to a file beside it.",
)
@click.option("--format", "form", type=click.Choice(["jsonl", "parquet"]), help="Of the rows, if --out does not tell.")
@click.option("--name", help="Run again under this name, unchanged documents are skipped. Left out, the sources' own.")
@click.option("--server", is_flag=True, help="SOURCES is one path or URL that the server reads itself.")
@click.option("--manifest", "is_manifest", is_flag=True, help="SOURCES is one JSONL file that names the documents.")
@click.option("--again", is_flag=True, help="Do unchanged documents, too.")
@click.option("--wait/--no-wait", default=True, help="Wait for the end, or print the id and come back.")
@to_server
@as_json
def run(
    sources: tuple[str, ...],
    steps: tuple[str, ...],
    out: Path | None,
    form: str | None,
    name: str | None,
    server: bool,
    is_manifest: bool,
    again: bool,
    wait: bool,
    url: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Work through SOURCES: files and folders of this machine, which are uploaded, or with --server one of its own.

    The same command again goes on where it was stopped, or does what has failed or changed since.
    """
    asked = [step_of(text) for text in steps]
    form = form or format_of(out)
    named = name or _name(sources, server=server)
    if (server or is_manifest) and len(sources) != 1:
        raise click.UsageError("--server and --manifest take one source.")
    with told_in_a_line():
        reach(url, api_key)
    with Client(url, api_key) as client:
        with told_in_a_line(lambda: "stopped; the same command goes on from here"):
            source = _source(client, sources, server=server, is_manifest=is_manifest)
            begun = None if again else _under_way(client, named, source, asked, form)
            if begun is None:
                begun = client.backfills.create(source, asked, output=form, name=named, skip_unchanged=not again)
            elif begun["status"] == "paused":
                begun = client.backfills.resume(begun["id"])
        if not wait:
            click.echo(json.dumps(begun) if as_json else begun["id"])
            return
        _follow(client, begun["id"], out, as_json=as_json)


@backfill.command()
@click.argument("backfill_id", required=False)
@click.option("--watch", is_flag=True, help="Draw a bar until it has ended.")
@click.option("--failed", is_flag=True, help="List the documents that failed, and why.")
@to_server
@as_json
def status(
    backfill_id: str | None, watch: bool, failed: bool, url: str | None, api_key: str | None, as_json: bool
) -> None:
    """Show how BACKFILL_ID stands, or list the newest."""
    if backfill_id is None and (watch or failed):
        raise click.UsageError("--watch and --failed need the id of a backfill.")
    with told_in_a_line(), Client(url, api_key) as client:
        if backfill_id is None:
            _list(client.backfills.list(), as_json=as_json)
        elif failed:
            _failures(client.backfills.documents(backfill_id, state="failed"), as_json=as_json)
        elif watch:
            _tell(watched(client, backfill_id), as_json=as_json)
        else:
            _tell(client.backfills.get(backfill_id), as_json=as_json)


@backfill.command()
@click.argument("backfill_id")
@to_server
def pause(backfill_id: str, url: str | None, api_key: str | None) -> None:
    """Begin no more documents of BACKFILL_ID; those under way come to their end."""
    with told_in_a_line(), Client(url, api_key) as client:
        click.echo(client.backfills.pause(backfill_id)["status"])


@backfill.command()
@click.argument("backfill_id")
@to_server
def resume(backfill_id: str, url: str | None, api_key: str | None) -> None:
    """Go on with BACKFILL_ID; if it has ended, with what failed and what was not begun."""
    with told_in_a_line(), Client(url, api_key) as client:
        click.echo(client.backfills.resume(backfill_id)["status"])


@backfill.command()
@click.argument("backfill_id")
@to_server
def cancel(backfill_id: str, url: str | None, api_key: str | None) -> None:
    """End BACKFILL_ID; the rows of documents that are done are kept."""
    with told_in_a_line(), Client(url, api_key) as client:
        click.echo(client.backfills.cancel(backfill_id)["status"])


@backfill.command()
@click.argument("backfill_id")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Where the rows go.")
@to_server
@as_json
def fetch(backfill_id: str, out: Path, url: str | None, api_key: str | None, as_json: bool) -> None:
    """Wait for the end of BACKFILL_ID and write its rows to a file, failures to one beside it."""
    with Client(url, api_key) as client:
        _follow(client, backfill_id, out, as_json=as_json)


def format_of(out: Path | None) -> str:
    """What the rows are written as, by the name of their file. Raises BadParameter where that tells nothing."""
    if out is None:
        return "jsonl"
    try:
        return _FORMATS[out.suffix.lower()]
    except KeyError:
        said = f"{out.name!r} does not say how rows are written: end it in {', '.join(_FORMATS)}, or give --format."
        raise click.BadParameter(said, param_hint="'--out'") from None


def step_of(text: str) -> dict[str, Any]:
    """A step from `parse:docling ocr=false`. A value is JSON where it can be read as that."""
    try:
        head, *pairs = shlex.split(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="'--step'") from None
    what, _, model = head.partition(":")
    options = options_of(pairs)
    own = {name: options.pop(name) for name in _FIELDS.get(what, ()) if name in options}
    step = {"step": what, "model": model or None, **own, "options": options}
    return {name: value for name, value in step.items() if value not in (None, {})}


def told(found: dict[str, Any]) -> str:
    """Where it stands, for the end of a bar."""
    counts, speed, left = found["counts"], found["per_second"], found["seconds_left"]
    parts = [found["status"]]
    parts += [f"{counts[name]} {name}" for name in ("failed", "skipped") if counts[name]]
    parts += [f"{speed:.1f}/s"] if speed else []
    parts += [f"{duration(left)} left"] if left is not None else []
    return ", ".join(parts)


def watched(client: Client, backfill_id: str) -> dict[str, Any]:
    """Draw a bar until it has ended, or is paused; how it then stands."""
    with bars() as drawn:
        bar = drawn.add_task(backfill_id, total=None, state="")
        while True:
            found = client.backfills.wait(backfill_id, timeout=LOOK_S)
            counts = found["counts"]
            ended = counts["completed"] + counts["failed"] + counts["skipped"]
            drawn.update(bar, completed=ended, total=counts["total"] or None, state=told(found))
            if found["status"] in ENDED or found["status"] == "paused":
                return found


def _follow(client: Client, backfill_id: str, out: Path | None, *, as_json: bool) -> None:
    goes_on = f"{backfill_id} goes on; `roost backfill status {backfill_id} --watch` follows it, cancel ends it"
    with told_in_a_line(lambda: goes_on):
        found = watched(client, backfill_id)
        if out is not None:
            _written(client, found["output_file_id"], out)
            _written(client, found["report_file_id"], out.with_name(f"{out.name}.failures.jsonl"))
        _tell(found, as_json=as_json)
    if found["status"] != "completed" or found["counts"]["failed"]:
        sys.exit(1)


def _written(client: Client, file_id: str | None, out: Path) -> None:
    """Whole or not at all; what an earlier run left there goes if there is nothing now."""
    if file_id is None:
        out.unlink(missing_ok=True)
        return
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            for piece in client.content(file_id):
                file.write(piece)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _source(client: Client, sources: Sequence[str], *, server: bool, is_manifest: bool) -> dict[str, Any]:
    if server:
        return {"path": sources[0]}
    if is_manifest:
        return manifest(client, [Path(sources[0]).read_bytes()])
    files = found([Path(source) for source in sources])
    if not files:
        raise click.ClickException(f"there are no files in {', '.join(sources)}")
    empty = [one for one in files if not one.path.stat().st_size]
    for one in empty:
        click.echo(f"{one.path}: empty, left out", err=True)
    with bars() as drawn:
        bar = drawn.add_task("upload", total=len(files) - len(empty), state="")
        lines = sent(client, [one for one in files if one not in empty], lambda _: drawn.advance(bar))
        return manifest(client, [one.line for one in lines])


def _under_way(
    client: Client, name: str, source: dict[str, Any], steps: Sequence[dict[str, Any]], form: str
) -> dict[str, Any] | None:
    """The backfill that this very command began, if it has not ended."""
    for one in client.backfills.list(name=name, most=1):
        same = one["source"] == source and one["output"] == {"format": form}
        if same and [_bare(step) for step in one["steps"]] == list(steps) and one["status"] not in ENDED:
            return one
    return None


def _bare(step: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in step.items() if value not in (None, {})}


def _name(sources: Sequence[str], *, server: bool) -> str:
    """What a run without a name is known by: where its documents are."""
    paths = sources if server else [str(Path(source).absolute()) for source in sources[:1]]
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return f"{paths[0][-200:]}{more}"


def _tell(one: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(one))
        return
    counts = one["counts"]
    click.echo(f"{one['id']}: {told(one)}")
    done = counts["completed"] + counts["skipped"]
    click.echo(f"{done} of {counts['total']} documents, {one['rows']} rows")
    for error in one["errors"] or []:
        click.echo(f"{error['code']}: {error['message']}", err=True)


def _list(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found))
        return
    names = ("id", "name", "status", "done", "failed", "of", "rows", "age")
    rows = []
    for one in found:
        counts = one["counts"]
        done = counts["completed"] + counts["skipped"]
        told = (done, counts["failed"], counts["total"], one["rows"], age(datetime.fromisoformat(one["created_at"])))
        rows.append((one["id"], one["name"] or "", one["status"], *told))
    show(names, rows)


def _failures(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found))
        return
    told = ((one["document"], one["error"]) for one in found)
    rows = [(document, error["step"], error["code"], error["message"]) for document, error in told]
    show(("document", "step", "error", "message"), rows)
