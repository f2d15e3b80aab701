"""The table of settings in docs/operations.md, made from `tasks.settings`.

`python -m deploy.settings_table` writes it into the page; a test fails when the page and the code differ.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from pydantic.fields import FieldInfo

from tasks.settings import Settings

START = "<!-- settings: written by `python -m deploy.settings_table` -->"
END = "<!-- end of settings -->"


def render() -> str:
    """The table in Markdown, one row for each setting, in the order of the code."""
    rows = [_row(name, field) for name, field in Settings.model_fields.items()]
    return "\n".join(["| variable | default | what it is |", "|---|---|---|", *rows])


def placed(page: str) -> str:
    """The page with the present table between its two marks. Raises ValueError if a mark is missing."""
    head, start, rest = page.partition(START)
    _, end, tail = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page needs the marks {START!r} and {END!r}")
    return f"{head}{START}\n{render()}\n{END}{tail}"


def _row(name: str, field: FieldInfo) -> str:
    description = (field.description or "").replace("|", "\\|")
    return f"| `ROOST_{name.upper()}` | {_shown(field.default)} | {description} |"


def _shown(default: object) -> str:
    value = default.value if isinstance(default, Enum) else default
    return f"`{value}`" if str(value) else "empty"


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs" / "operations.md"
    path.write_text(placed(path.read_text(encoding="utf-8")), encoding="utf-8")
