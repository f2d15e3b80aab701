"""The models of a server, and how they stand there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from catalog.errors import nearest
from deploy.commands.connecting import QUICK_S, told_in_a_line
from deploy.commands.showing import show, size
from deploy.models import count, narrowed
from roost import Client

_NAMES = ("model", "state", "weights", "waiting", "queued", "parameters", "verbs", "family")


def list_served(
    verb: str | None, family: str | None, word: str, url: str | None, api_key: str | None, *, as_json: bool
) -> None:
    """Print the models of the server that are asked for."""
    with told_in_a_line(), Client(url, api_key, patience_s=QUICK_S) as client:
        told = client.get("/v1/models")
    found = told["data"]
    _know_family(family, {model["family"] for model in found})
    chosen = narrowed(found, verb, family, word)
    if as_json:
        click.echo(json.dumps(chosen))
        return
    show(_NAMES, [_row(model) for model in chosen])
    click.echo(f"{len(chosen)} of {len(found)} models", err=True)
    for problem in told["problems"]:
        click.secho(f"left out of the server's catalog: {problem}", fg="yellow", err=True)


def _know_family(family: str | None, known: set[str]) -> None:
    if family is not None and family not in known:
        near = nearest(family, sorted(known))
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.BadParameter(f"no model of the server is of family {family!r}.{hint}", param_hint="'--family'")


def _row(model: Mapping[str, Any]) -> tuple[object, ...]:
    needs = "" if model["allowed"] else f" (needs {', '.join(model['needs'])}: see ROOST_TRUST)"
    return (
        model["id"],
        model["state"],
        size(model["bytes"]["weights"]) if model["loaded"] else "-",
        model["waiting"],
        model["queued"],
        count(model["parameters"]),
        ",".join(model["verbs"]),
        f"{model['family']}{needs}",
    )
