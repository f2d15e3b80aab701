"""How a command of a caller reaches the server, and how it ends when that goes wrong: one line, and a status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED = 130
"""The status of a command that was ended by Ctrl-C, as shells have it."""

as_json = click.option("--json", "as_json", is_flag=True, help="For programs.")
_URL = click.option("--url", metavar="URL", help="The server: ROOST_URL, or else http://127.0.0.1:8080.")
_KEY = click.option("--api-key", metavar="KEY", help="Who asks: ROOST_API_KEY.")


QUICK_S = 2.0
"""For how long a command looks for a server that is not there; one that was there and went away is waited for."""


def reach(url: str | None, api_key: str | None) -> None:
    """Raises ConnectionFailed soon where no server is, before a command that would be patient with it."""
    from roost.client import Client

    with Client(url, api_key, patience_s=QUICK_S) as client:
        client.text("/healthz")


def to_server(command: F) -> F:
    """The options of a command that asks a server."""
    return _URL(_KEY(command))


@contextmanager
def told_in_a_line(interrupted: Callable[[], str] = lambda: "") -> Iterator[None]:
    """End with one line on stderr for what goes wrong; `interrupted` is what to say at Ctrl-C."""
    # Here, not above: whoever only lists the commands does not need a client.
    from roost.errors import ConnectionFailed, RoostError

    try:
        yield
    except ConnectionFailed as error:
        raise click.ClickException(f"{error.message} Is a server there? `roost up` starts one.") from None
    except RoostError as error:
        at = f" ({error.param})" if error.param and error.param not in error.message else ""
        raise click.ClickException(f"{error.code}: {error.message}{at}") from None
    except BrokenPipeError:
        raise  # whoever read our output has enough; click ends without a word
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
    except KeyboardInterrupt:
        if said := interrupted():
            click.echo(said, err=True)
        sys.exit(INTERRUPTED)
