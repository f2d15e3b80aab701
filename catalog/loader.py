"""Which models there are: the built-in YAMLs, then those of extra folders, and how a name finds its model.

A catalog is frozen. `catalog.live` puts a new one in its place when files have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog.errors import AmbiguousModel, InvalidSpec, ModelNotAllowed, UnknownModel
from catalog.schema import Spec
from catalog.specfile import merged, read_spec

BUILT_IN = Path(__file__).parent / "models"
DEFAULT = "default"
_LONGEST_NAME = 300


@dataclass(frozen=True, slots=True)
class Choice:
    """What a caller's name means: a model and one of its profiles.

    `key` is the one spelling used in jobs, queues and residency: `id`, or `id:profile`. `load` and `run` are the
    profile's values over those it extends; do not change them.
    """

    spec: Spec
    profile: str
    key: str
    load: dict[str, Any]
    run: dict[str, Any]


class Catalog:
    """All models by name. `specs` is sorted by id; `problems` lists the files that were left out, and why.

    `trusted` holds the ids of the models that may have what they need: code of their own, pickled weights.
    """

    def __init__(
        self, specs: Iterable[Spec], problems: Sequence[InvalidSpec] = (), *, trusted: Collection[str] = ()
    ) -> None:
        self.specs: tuple[Spec, ...] = tuple(sorted(specs, key=lambda spec: spec.id))
        self.problems: tuple[InvalidSpec, ...] = tuple(problems)
        self._trusted = frozenset(trusted)
        self._choices = {choice.key: choice for spec in self.specs for choice in _choices(spec)}
        self._tails: dict[str, list[str]] = {}
        for spec in self.specs:
            self._tails.setdefault(spec.id.rsplit("/", 1)[-1], []).append(spec.id)

    @classmethod
    def load(
        cls,
        folders: Sequence[Path | str] = (),
        *,
        strict: bool = False,
        built_in: Path = BUILT_IN,
        trusted: Collection[str] = (),
    ) -> Catalog:
        """The built-in models and those of `folders`; a later folder replaces a model of the same id.

        With `strict` the first bad file raises InvalidSpec; without, it is left out and listed in `problems`, and a
        model of an earlier folder that it meant to replace stays.
        """
        specs: dict[str, Spec] = {}
        problems: list[InvalidSpec] = []
        for folder in (built_in, *map(Path, folders)):
            found, bad = read_folder(folder, read_spec)
            problems += bad
            specs.update(found)
        if strict and problems:
            raise problems[0]
        return cls(specs.values(), problems, trusted=trusted)

    @property
    def keys(self) -> tuple[str, ...]:
        """Every name that may be used, in its one spelling, profiles included, sorted."""
        return tuple(sorted(key for key, choice in self._choices.items() if self.allows(choice.spec)))

    def allows(self, spec: Spec) -> bool:
        """Whether a model may have what it needs."""
        return not spec.source.needs or spec.id in self._trusted

    def find(self, name: str) -> Choice:
        """The model and profile of `org/name`, `org/name:profile`, `org__name` or a bare `name` that only one has.

        A name is only looked up among those loaded; it is never a path. Raises UnknownModel with the nearest names, and
        ModelNotAllowed for a model that needs what the operator has not allowed it.
        """
        choice = self.look_up(name)
        if not self.allows(choice.spec):
            raise not_allowed(choice.spec)
        return choice

    def look_up(self, name: str) -> Choice:
        """As `find`, allowed or not: for telling of a model, not for using it."""
        choice = self._choices.get(name)
        if choice is not None:
            return choice
        if len(name) > _LONGEST_NAME:
            raise UnknownModel(name, ())
        model, _, profile = name.partition(":")
        spec_id = self._spec_id(model, name)
        key = spec_id if profile == DEFAULT or ":" not in name else f"{spec_id}:{profile}"
        if key not in self._choices:
            raise UnknownModel(name, [k for k in self._choices if k.partition(":")[0] == spec_id])
        return self._choices[key]

    def _spec_id(self, model: str, name: str) -> str:
        for spelling in (model, model.replace("__", "/", 1)):
            if spelling in self._choices and ":" not in spelling:
                return spelling
        ids = self._tails.get(model, [])
        if len(ids) > 1:
            raise AmbiguousModel(model, ids)
        if not ids:
            raise UnknownModel(name, [spec.id for spec in self.specs])
        return ids[0]


def _choices(spec: Spec) -> Iterable[Choice]:
    for profile in dict.fromkeys((DEFAULT, *spec.profiles)):
        key = spec.id if profile == DEFAULT else f"{spec.id}:{profile}"
        yield Choice(spec, profile, key, merged(spec, profile, "load"), merged(spec, profile, "run"))


def not_allowed(spec: Spec) -> ModelNotAllowed:
    """The error of a model that needs what nobody has allowed it."""
    kinds = {"code": "code of its own", "pickle": "weights in a pickle, which can hold code"}
    needed = " and ".join(kinds[need] for need in spec.source.needs)
    return ModelNotAllowed(
        f"Model {spec.id!r} needs {needed}. An operator who trusts it puts {spec.id} into ROOST_TRUST.", param="model"
    )


def model_files(folder: Path) -> list[Path]:
    """The files of a folder that define models, by name. Raises OSError."""
    return sorted(f for f in folder.iterdir() if f.suffix in (".yaml", ".yml") and not f.name.startswith("."))


def read_folder(folder: Path, read: Callable[[Path], Spec | None]) -> tuple[dict[str, Spec], list[InvalidSpec]]:
    """The models of one folder, not of those below it. Of two files with one id, the second by name is a problem.

    `read` gives the spec of a file, or None for one to be passed over; it raises InvalidSpec.
    """
    specs: dict[str, Spec] = {}
    problems: list[InvalidSpec] = []
    try:
        files = model_files(folder)
    except OSError as error:
        return {}, [InvalidSpec(f"{folder}: the folder cannot be read: {error.strerror or error}.")]
    for file in files:
        try:
            spec = read(file)
        except InvalidSpec as error:
            problems.append(error)
            continue
        if spec is None:
            continue
        if spec.id in specs:
            message = f"{file}: id: another file in this folder has the id {spec.id!r} too."
            problems.append(InvalidSpec(message, param="id"))
        else:
            specs[spec.id] = spec
    return specs, problems
