"""Which model families there are, and whether a spec fits its family. Loads no weights.

A catalog cannot know families, since the engine lies above it: a `family` that no module serves, or a `load` that its
family does not take, is found here, when the engine starts, and again at the load, which then fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pydantic import ValidationError

import engine.adapters
from catalog.errors import InvalidSpec, nearest
from catalog.schema import Spec
from catalog.specfile import merged
from engine.adapters.base import Adapter, LoadOptions, Place, StepAdapter
from engine.errors import EngineError, LoadFailed, LoadReason
from engine.failures import load_failure


def families() -> list[str]:
    """The names that a spec's `family` may have, sorted. Imports none of their modules."""
    return sorted(module.name for module in iter_modules(engine.adapters.__path__) if module.name != "base")


@cache
def adapter_class(family: str) -> type[Adapter]:
    """The adapter of a family's module. Raises LoadFailed where there is none or it cannot be imported."""
    module_name = f"engine.adapters.{family}"
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == module_name:
            raise LoadFailed(_no_family(family), LoadReason.CONFIG) from error
        raise load_failure(family, error) from error
    except Exception as error:
        raise load_failure(family, error) from error
    name = "".join(part.capitalize() for part in family.split("_")) + "Adapter"
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise LoadFailed(f"The module {module_name} defines no adapter {name}.", LoadReason.CONFIG)
    return found


def beside_device(family: str) -> bool:
    """Whether a family's work leaves the device to others meanwhile: it goes step by step, or is done by the host.

    False for a family that there is not.
    """
    try:
        found = adapter_class(family)
    except EngineError:
        return False
    return found.place is Place.HOST or issubclass(found, StepAdapter)


def read_options(family: type[Adapter], load: Mapping[str, Any]) -> LoadOptions:
    """The load options in a YAML. Raises InvalidSpec that names the option, and the nearest valid one if it is unknown.

    Its `param` is `load` with the option's path.
    """
    try:
        return family.options.model_validate(dict(load))
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
        where = [str(part) for part in first["loc"]]
        said = first["msg"].removeprefix("Value error, ").rstrip(".") + "."
        if first["type"] == "extra_forbidden":
            said = "unknown" + (_instead(where[0], list(family.options.model_fields)) if len(where) == 1 else ".")
        param = ".".join(["load", *where])
        raise InvalidSpec(f"Load option {'.'.join(where)!r}: {said}", param=param) from error


def check(specs: Iterable[Spec]) -> list[InvalidSpec]:
    """What will keep these models, or profiles of theirs, from being loaded, as far as their YAML alone tells."""
    return [problem for spec in specs for problem in _check(spec)]


def _check(spec: Spec) -> Iterator[InvalidSpec]:
    try:
        family = adapter_class(spec.family)
    except EngineError as error:
        yield InvalidSpec(f"{spec.id}: family: {error.message}", param="family")
        return
    said: set[str] = set()
    for profile in ("", *spec.profiles):
        try:
            _allowed(spec, read_options(family, merged(spec, profile, "load")))
        except InvalidSpec as error:
            if error.message not in said:  # a profile has the faults of what it builds on
                said.add(error.message)
                field = f"profiles.{profile}.{error.param}" if profile else str(error.param)
                yield InvalidSpec(f"{spec.id}: {field}: {error.message}", param=field)


def _allowed(spec: Spec, options: LoadOptions) -> None:
    """Raise InvalidSpec for a precision that the spec has no measured loss of."""
    precision = getattr(options, "precision", "float32")
    if precision != "float32" and precision not in spec.precisions:
        message = f"Load option 'precision': {precision} needs its measured loss under 'precisions.{precision}'."
        raise InvalidSpec(message, param="load.precision")


def _no_family(family: str) -> str:
    return f"There is no model family {family!r}: engine/adapters has no such module{_instead(family, families())}"


def _instead(name: str, valid: list[str]) -> str:
    close = nearest(name, valid, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; valid: {', '.join(valid) or 'none'}."
