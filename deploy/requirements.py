"""Print what `pip install roost<extras>` needs, from `pyproject.toml` in this folder: the images' first layer.

Stands alone, so that an image can build its dependencies before the rest of the source is there.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: str, extras: str) -> list[str]:
    """The dependencies of the project and of `extras`, written as pip does: `""`, `"[worker]"`, `"[worker,flower]"`."""
    project = tomllib.loads(pyproject)["project"]
    chosen = [name.strip() for name in extras.strip("[]").split(",") if name.strip()]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    unknown = [name for name in chosen if name not in optional]
    if unknown:
        raise SystemExit(f"no such extra: {', '.join(unknown)}; there are: {', '.join(optional)}")
    return [*project["dependencies"], *(line for name in chosen for line in optional[name])]


if __name__ == "__main__":
    extras = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.stdout.write("\n".join(requirements(Path("pyproject.toml").read_text(), extras)) + "\n")
