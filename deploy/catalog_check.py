"""A look at the catalog before anything is started: a wrong name would only stop the engine child, again and again."""

from __future__ import annotations

from catalog.errors import CatalogError
from tasks.catalog import live_catalog
from tasks.settings import Settings


class WrongCatalogError(CatalogError):
    """ROOST_CATALOG, ROOST_PRELOAD or ROOST_PINNED names what is not there; mend the variable."""


def checked(settings: Settings) -> list[str]:
    """The files that were left out of the catalog, and why.

    Raises WrongCatalogError for a folder that is not there, and for a model to preload or pin that is not known
    or not allowed.
    """
    missing = [str(folder) for folder in settings.catalog_folders if not folder.is_dir()]
    if missing:
        raise WrongCatalogError(f"ROOST_CATALOG names what is no folder: {', '.join(missing)}")
    catalog = live_catalog(settings)
    unknown: list[str] = []
    for variable, names in (("ROOST_PRELOAD", settings.preload_names), ("ROOST_PINNED", settings.pinned_names)):
        for name in names:
            try:
                catalog.ask(name)
            except CatalogError as error:
                unknown.append(f"{variable}: {error.message}")
    left_out = [problem.message for problem in catalog.problems]
    if unknown:
        # A model may be unknown because its file is no good.
        raise WrongCatalogError("\n".join([*unknown, *map(told, left_out)]))
    return left_out


def told(problem: str) -> str:
    """The line about a file that was left out."""
    return f"left out of the catalog: {problem}"
