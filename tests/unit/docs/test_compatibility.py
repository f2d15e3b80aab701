"""docs/compatibility.md has a row for every route of another service's dialect, and for none that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from starlette.routing import BaseRoute, Route, WebSocketRoute

from api import compat
from api.app import create_app
from catalog.loader import Catalog
from tasks.settings import Settings

ANSWERS = {"works", "differs", "refused"}


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """The cells of all rows of the tables of calls: call, route, answer, how."""
    page = (Path(__file__).parents[3] / "docs" / "compatibility.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if re.match(r"\|.*\| (works|differs|refused) \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def named(routes: Iterable[BaseRoute]) -> set[str]:
    """Routes as the page names them: the method and the path, without the converters of its parameters."""
    found = set()
    for route in routes:
        if isinstance(route, Route):
            found |= {f"{method} {route.path_format}" for method in route.methods or ()}
        elif isinstance(route, WebSocketRoute):
            found.add(f"WS {route.path_format}")
    return found


def told(rows: list[list[str]]) -> set[str]:
    return {route for row in rows for route in re.findall(r"`((?:[A-Z]+|WS) /[^`?]*)[^`]*`", row[1])}


def test_every_route_of_a_dialect_has_a_row(rows: list[list[str]]) -> None:
    served = named(route for router in compat.routers for route in router.routes)
    assert served - told(rows) == set()


def test_every_route_of_a_row_is_served(rows: list[list[str]]) -> None:
    served = named(create_app(Settings(), Catalog([])).routes)
    refused = {route for row in rows if row[2] == "refused" for route in told([row])}
    assert told(rows) - served - refused == set()


def test_whatever_differs_or_is_refused_says_how(rows: list[list[str]]) -> None:
    for call, _, answer, how in rows:
        assert answer in ANSWERS
        assert how or answer == "works", call
