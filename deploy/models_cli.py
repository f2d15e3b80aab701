"""`roost models`: list what a server has; list, show, pull and check what the catalog of this machine has.

What takes long to import is imported by the commands: `roost` itself starts at once.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from catalog.errors import RoostError, nearest
from catalog.terms import Verb
from deploy.commands.connecting import as_json, to_server
from tasks.settings import Settings

if TYPE_CHECKING:
    from catalog.live import LiveCatalog


@click.group(invoke_without_command=True)
@to_server
@as_json
@click.pass_context
def models(context: click.Context, url: str | None, api_key: str | None, as_json: bool) -> None:
    """List the models of a server and how they stand; show, fetch and check those of this machine's catalog."""
    if context.invoked_subcommand is None:
        context.invoke(list_models, word="", url=url, api_key=api_key, as_json=as_json)
    elif url or api_key or as_json:
        raise click.UsageError(f"put options after {context.invoked_subcommand!r}, which is what takes them")


@models.command(name="list")
@click.option("--verb", type=click.Choice([verb.value for verb in Verb]), help="Only those that do this.")
@click.option("--family", help="Only those of this family.")
@click.option("--here", is_flag=True, help="Those of this machine's catalog, without asking a server.")
@click.argument("word", default="")
@to_server
@as_json
def list_models(
    verb: str | None, family: str | None, here: bool, word: str, url: str | None, api_key: str | None, as_json: bool
) -> None:
    """List the models that a server has, or those with WORD in their name or description."""
    if not here:
        from deploy.commands.models import list_served

        list_served(verb, family, word, url, api_key, as_json=as_json)
        return
    from deploy import models as told

    catalog = _catalog()
    _know_family(family)
    _warn(catalog)
    known = (told.row(spec, allowed=catalog.allows(spec)) for spec in catalog.specs)
    rows = told.narrowed(known, verb, family, word)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(row["id"]) for row in rows), default=0)
    for row in rows:
        marks = "" if row["allowed"] else f"  needs {', '.join(row['needs'])}: see ROOST_TRUST"
        verbs = ",".join(row["verbs"])
        click.echo(f"{row['id']:<{width}}  {told.count(row['parameters']):>6}  {verbs:<13} {row['family']}{marks}")
    click.echo(f"{len(rows)} of {len(catalog.specs)} models", err=True)


@models.command()
@click.argument("name")
@as_json
def show(name: str, as_json: bool) -> None:
    """Show all that is known of a model, its options, and where its files are."""
    from deploy import models as told

    catalog = _catalog()
    _warn(catalog)
    try:
        if catalog.must_ask(name):
            catalog.ask(name)
        choice = catalog.look_up(name)
    except RoostError as error:
        raise click.ClickException(error.message + _as_path(name)) from error
    found = told.whole(choice, allowed=catalog.allows(choice.spec))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for field, value in found.items():
        if value not in ("", [], {}, None):
            click.echo(f"{field + ':':<14} {_line(value)}")


@models.command()
@click.argument("names", nargs=-1, required=True)
@as_json
def pull(names: tuple[str, ...], as_json: bool) -> None:
    """Fetch the files of models, so that no job waits for them. What is here already is not fetched again."""
    from catalog.weights import Locator

    catalog = _catalog()
    _warn(catalog)
    locator = Locator(progress=not as_json)
    rows: list[dict[str, Any]] = []
    for name in names:
        try:
            choice = catalog.ask(name)
            folder = locator.locate(choice.spec)
        except RoostError as error:
            message = error.message + _as_path(name)
            rows.append({"name": name, "error": {"code": error.code, "message": message}})
            if not as_json:
                click.secho(f"{name}: {message}", fg="red", err=True)
            continue
        rows.append({"name": name, "key": choice.key, "files": str(folder) if folder else None})
        if not as_json:
            click.echo(f"{choice.key}: {folder or 'has no files of its own'}")
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    sys.exit(1 if any("error" in row for row in rows) else 0)


@models.command()
@as_json
def check(as_json: bool) -> None:
    """Check every YAML and whether its family takes it; exit status 1 if one is no good."""
    from deploy import models as told

    catalog = _catalog()
    found = told.problems(catalog)
    if as_json:
        click.echo(json.dumps({"models": len(catalog.specs), "problems": found}, indent=2))
    else:
        for problem in found:
            click.secho(problem, fg="red")
        click.echo(f"{len(catalog.specs)} models, {len(found)} problem{'s' if len(found) != 1 else ''}")
    sys.exit(1 if found else 0)


def _catalog() -> LiveCatalog:
    from tasks.catalog import live_catalog

    return live_catalog(Settings.from_environment())


def _warn(catalog: LiveCatalog) -> None:
    """A file that was left out is why a model is missing."""
    if catalog.problems:
        many = "1 file is" if len(catalog.problems) == 1 else f"{len(catalog.problems)} files are"
        click.secho(f"{many} no good: see `roost models check`", fg="yellow", err=True)


def _know_family(family: str | None) -> None:
    from engine.families import families

    known = families()
    if family is not None and family not in known:
        near = nearest(family, known)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(known)}."
        raise click.BadParameter(f"no family is called {family!r}. {hint}", param_hint="'--family'")


def _as_path(name: str) -> str:
    """What to do about a path, which is no name."""
    if not name.startswith((".", "/", "~")):
        return ""
    return " A model is named and not given as a path: put the folder that holds it into ROOST_MODEL_FOLDERS."


def _line(value: Any) -> str:
    if isinstance(value, str | int | float):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
