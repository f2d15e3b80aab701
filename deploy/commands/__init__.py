"""The commands of those who use a server speak to it by HTTP, as any client: submit, wait, jobs, backfill and others.

`keys` is for whoever runs it: it speaks to the database.
"""

from __future__ import annotations

import importlib

import click

NAMES = ("backfill", "dead", "jobs", "keys", "submit", "top", "usage", "wait", "webhooks")
"""Each is the command of that name in the module of that name; `roost models` has a place of its own."""


class WithCallers(click.Group):
    """A group with these commands, each imported when it is asked for: the pieces of a server start without them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command by its name."""
        return sorted([*super().list_commands(ctx), *NAMES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name; None if there is none."""
        if cmd_name not in NAMES:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(importlib.import_module(f"deploy.commands.{cmd_name}"), cmd_name)
        return found
