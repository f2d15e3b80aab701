"""`roost models`: list, show, pull and check what the catalog has.

What takes long to import is imported by the commands: `roost` itself starts at once.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from catalog.errors import RoostError
from catalog.terms import Verb
from tasks.settings import Settings

if TYPE_CHECKING:
    from catalog.live import LiveCatalog

_JSON = click.option("--json", "as_json", is_flag=True, help="For programs.")


@click.group()
def models() -> None:
    """List, show, fetch and check the models of the catalog."""


@models.command(name="list")
@click.option("--verb", type=click.Choice([verb.value for verb in Verb]), help="Only those that do this.")
@click.option("--family", help="Only those of this family.")
@click.argument("word", default="")
@_JSON
def list_models(verb: str | None, family: str | None, word: str, as_json: bool) -> None:
    """List the models, or those with WORD in their name or description."""
    from deploy import models as told

    catalog = _catalog()
    found = told.chosen(catalog.specs, verb, family, word)
    rows = [told.row(spec, allowed=catalog.allows(spec)) for spec in found]
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
@_JSON
def show(name: str, as_json: bool) -> None:
    """Show all that is known of a model, its options, and where its files are."""
    from deploy import models as told

    catalog = _catalog()
    try:
        if catalog.must_ask(name):
            catalog.ask(name)
        choice = catalog.look_up(name)
    except RoostError as error:
        raise click.ClickException(error.message) from error
    found = told.whole(choice, allowed=catalog.allows(choice.spec))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for field, value in found.items():
        if value not in ("", [], {}, None):
            click.echo(f"{field + ':':<14} {_line(value)}")


@models.command()
@click.argument("names", nargs=-1, required=True)
def pull(names: tuple[str, ...]) -> None:
    """Fetch the files of models, so that no job waits for them. What is here already is not fetched again."""
    from catalog.weights import Locator

    catalog, failed = _catalog(), False
    locator = Locator(progress=True)
    for name in names:
        try:
            choice = catalog.ask(name)
            folder = locator.locate(choice.spec)
        except RoostError as error:
            failed = True
            click.secho(f"{name}: {error.message}", fg="red", err=True)
            continue
        click.echo(f"{choice.key}: {folder or 'has no files of its own'}")
    sys.exit(1 if failed else 0)


@models.command()
@_JSON
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
        click.echo(f"{len(catalog.specs)} models, {len(found)} problems")
    sys.exit(1 if found else 0)


def _catalog() -> LiveCatalog:
    from tasks.catalog import live_catalog

    return live_catalog(Settings.from_environment())


def _line(value: Any) -> str:
    if isinstance(value, str | int | float):
        return str(value)
    return json.dumps(value, ensure_ascii=False)
