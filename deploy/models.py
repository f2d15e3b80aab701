"""What `roost models` tells: the catalog's models, one in full, what its files need, and whether all YAMLs are good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from catalog.errors import RoostError
from catalog.live import LiveCatalog
from catalog.loader import Choice
from catalog.options import EncodeOptions, ExtractOptions, GenerateOptions, ScoreOptions, option_names
from catalog.schema import Spec
from catalog.terms import Verb
from catalog.weights import locate_here

_OPTIONS: Mapping[Verb, type[BaseModel]] = {
    Verb.ENCODE: EncodeOptions,
    Verb.SCORE: ScoreOptions,
    Verb.EXTRACT: ExtractOptions,
    Verb.GENERATE: GenerateOptions,
}


@dataclass(frozen=True, slots=True)
class Files:
    """Where a model's files are on this machine: a folder, or why there is none."""

    folder: str | None
    why: str


def narrowed(
    rows: Iterable[Mapping[str, Any]], verb: str | None, family: str | None, word: str
) -> list[Mapping[str, Any]]:
    """Those that do a verb, are of a family, and have a word in their id or description."""
    wanted = word.casefold()
    return [
        row
        for row in rows
        if verb in (None, *row["verbs"])
        and family in (None, row["family"])
        and wanted in f"{row['id']} {row['description']}".casefold()
    ]


def row(spec: Spec, *, allowed: bool) -> dict[str, Any]:
    """A model in a list."""
    return {
        "id": spec.id,
        "family": spec.family,
        "verbs": [verb.value for verb in spec.verbs],
        "parameters": spec.parameters,
        "max_length": spec.max_length,
        "unit": spec.unit,
        "licence": spec.licence,
        "needs": list(spec.source.needs),
        "allowed": allowed,
        "profiles": sorted(spec.profiles),
        "verified": spec.verified,
        "description": spec.description,
    }


def whole(choice: Choice, *, allowed: bool) -> dict[str, Any]:
    """All that is known of a model: its facts, the options that it takes, and where its files are."""
    spec, files = choice.spec, files_of(choice.spec)
    return {
        **row(spec, allowed=allowed),
        "key": choice.key,
        "source": spec.source.model_dump(exclude_defaults=True),
        "tasks": spec.tasks.model_dump(mode="json", exclude_none=True),
        "inputs": list(spec.inputs),
        "load": choice.load,
        "run": choice.run,
        "options": {verb.value: options_of(spec, verb) for verb in spec.verbs},
        "loras": sorted(spec.loras),
        "files": files.folder,
        "files_missing": None if files.folder else files.why,
    }


def options_of(spec: Spec, verb: Verb) -> dict[str, Any]:
    """The options that a model takes for a verb, each with what it is when left out."""
    model = _OPTIONS[verb]
    return {name: _plain(model.model_fields[name].default) for name in option_names(spec, verb)}


def files_of(spec: Spec) -> Files:
    """Looks on this machine alone."""
    try:
        folder = locate_here(spec)
    except RoostError as error:
        return Files(None, error.message)
    return Files(None, "It has no files of its own.") if folder is None else Files(str(folder), "")


def problems(catalog: LiveCatalog) -> list[str]:
    """What is wrong with files, and with models whose family does not take them; none if all is well."""
    from engine.families import check

    return [*(problem.message for problem in catalog.problems), *(problem.message for problem in check(catalog.specs))]


def count(parameters: int) -> str:
    """A number of weights for people."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if parameters >= 0.9995 * size:
            return f"{parameters / size:.3g}{letter}"
    return str(parameters)


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)
