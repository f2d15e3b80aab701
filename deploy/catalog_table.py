"""The table of all built-in models in docs/catalog.md, made from the catalog.

`python -m deploy.catalog_table` writes it into the page; a test fails when the page and the catalog differ.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from catalog.loader import Catalog
from catalog.schema import Spec
from deploy.models import count

START = "<!-- models: written by `python -m deploy.catalog_table` -->"
END = "<!-- end of models -->"


def render() -> str:
    """The models in Markdown: a table for each family, by name."""
    specs = sorted(Catalog.load().specs, key=lambda spec: (spec.family, spec.id.casefold()))
    families = [(family, list(group)) for family, group in groupby(specs, key=lambda spec: spec.family)]
    lines = [f"{len(specs)} models of {len(families)} families."]
    for family, group in families:
        lines += [
            "",
            f"### {family}",
            "",
            "| model | verbs | weights | reads | licence | needs |",
            "|---|---|---|---|---|---|",
        ]
        lines += map(_row, group)
    return "\n".join(lines)


def placed(page: str) -> str:
    """The page with the present table between its two marks. Raises ValueError if a mark is missing."""
    head, start, rest = page.partition(START)
    _, end, tail = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page needs the marks {START!r} and {END!r}")
    return f"{head}{START}\n{render()}\n{END}{tail}"


def _row(spec: Spec) -> str:
    profiles = "".join(f" `:{name}`" for name in sorted(spec.profiles))
    reads = f"{spec.max_length:,} {spec.unit}"
    cells = [
        f"`{spec.id}`{profiles}",
        ", ".join(spec.verbs),
        count(spec.parameters) if spec.parameters else "",
        reads,
        spec.licence or "not checked",
        ", ".join(spec.source.needs),
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs" / "catalog.md"
    path.write_text(placed(path.read_text(encoding="utf-8")), encoding="utf-8")
