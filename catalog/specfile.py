"""One model's YAML file, read strictly: whatever is wrong becomes an InvalidSpec that names the file and the field.

Refused besides what the schema refuses: keys given twice (YAML would keep the last in silence), anchors and aliases
(`extends` serves, and they can blow a small file up), files over 256 KiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from catalog.errors import InvalidOption, InvalidSpec, nearest
from catalog.options import parse_options, run_defaults
from catalog.schema import (
    CostCoefficients,
    EncodeFacts,
    ExtractFacts,
    GenerateFacts,
    LoraSource,
    Loss,
    PackageWeights,
    Profile,
    ScoreFacts,
    Source,
    Spec,
    Stay,
    Tasks,
)

MAX_BYTES = 256 * 1024

_PLACES: dict[str, type[BaseModel]] = {
    "": Spec,
    "source": Source,
    "source.package": PackageWeights,
    "tasks": Tasks,
    "tasks.encode": EncodeFacts,
    "tasks.score": ScoreFacts,
    "tasks.extract": ExtractFacts,
    "tasks.generate": GenerateFacts,
    "loras.*": LoraSource,
    "cost": CostCoefficients,
    "stay": Stay,
    "precisions.*": Loss,
    "profiles.*": Profile,
}
"""Where a file has which keys. `load` and `run` are not here: others know their keys."""


def read_spec(file: Path) -> Spec:
    """The spec in `file`; a relative `source.path` is taken from the file's own folder. Raises InvalidSpec."""
    try:
        spec = Spec.model_validate(_mapping(file))
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        # A misspelt key is often why another is missing.
        first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
        where = [str(part) for part in first["loc"] if part != "[key]"]
        unknown = first["type"] == "extra_forbidden"
        advice = _nearest_key(where) if unknown else first["msg"].removeprefix("Value error, ")
        raise _invalid(file, ".".join(where), advice) from error
    _check_run_defaults(file, spec)
    if spec.source.path is None:
        return spec
    path = file.parent.resolve() / Path(spec.source.path).expanduser()
    return spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(path)})})


def merged(spec: Spec, profile: str, part: str) -> dict[str, Any]:
    """The `load` or `run` values of a profile: the model's own, then each profile from the far end of `extends` on.

    A later value replaces an earlier one whole. `default` names the model without a profile, or a profile of that
    name if there is one.
    """
    chain: list[Profile] = []
    name: str | None = profile
    while name is not None and name in spec.profiles:
        chain.append(spec.profiles[name])
        name = None if name == "default" else spec.profiles[name].extends
    values: dict[str, Any] = dict(getattr(spec, part))
    for link in reversed(chain):
        values.update(getattr(link, part))
    return values


def _mapping(file: Path) -> dict[str, Any]:
    try:
        if file.exists() and not file.is_file():
            # Reading a pipe or a device may never end.
            raise _invalid(file, "", "this is no regular file")
        with file.open("rb") as source:
            data = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise _invalid(file, "", f"the file cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise _invalid(file, "", f"the file has more than {MAX_BYTES} bytes")
    try:
        return _parsed(file, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _invalid(file, "", f"not UTF-8 at byte {error.start}") from error
    except yaml.YAMLError as error:
        raise _invalid(file, "", f"not valid YAML: {' '.join(str(error).split())[:300]}") from error
    except (RecursionError, ValueError, OverflowError) as error:
        # SafeLoader's constructors let a ValueError through, for a date such as 2024-13-40.
        raise _invalid(file, "", f"not valid YAML: {type(error).__name__}") from error


def _parsed(file: Path, text: str) -> dict[str, Any]:
    loader = yaml.CSafeLoader(text) if yaml.__with_libyaml__ else yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise _invalid(file, "", "the file must hold one mapping, such as 'id: org/name'")
        _refuse_repeats(file, node, "", set())
        mapping: dict[str, Any] = loader.construct_document(node)
    finally:
        loader.dispose()
    return mapping


def _refuse_repeats(file: Path, node: yaml.Node, path: str, seen: set[int]) -> None:
    if id(node) in seen:
        raise _invalid(file, path, "anchors and aliases are not supported; let a profile extend another")
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            _refuse_repeats(file, child, f"{path}.{index}".lstrip("."), seen)
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _invalid(file, path, f"the key on line {key.start_mark.line + 1} must be plain text; quote it")
            field = f"{path}.{key.value}".lstrip(".")
            if key.value in keys:
                raise _invalid(file, field, f"given twice; the second is on line {key.start_mark.line + 1}")
            keys.add(key.value)
            _refuse_repeats(file, value, field, seen)


def _check_run_defaults(file: Path, spec: Spec) -> None:
    """Run-time defaults are checked here, so that no request pays for a typo in a YAML."""
    for name in ("", *spec.profiles):
        owner = f"profiles.{name}.run" if name else "run"
        run = merged(spec, name, "run")
        taken = {option for verb in spec.verbs for option in run_defaults(verb, run)}
        for verb in spec.verbs:
            # A name that no verb of the model knows is told as an option of the first.
            sent = run if not taken.issuperset(run) else run_defaults(verb, run)
            try:
                parse_options(spec, verb, {}, sent)
            except InvalidOption as error:
                raise _invalid(file, (error.param or "options").replace("options", owner, 1), error.message) from error


def _nearest_key(where: Sequence[str]) -> str:
    """What an unknown key may have meant: one of another place, a misspelt one of this, or else any of this."""
    *parents, key = where
    # Of a place that holds names of the author's own, the second part is such a name.
    named = bool(parents) and f"{parents[0]}.*" in _PLACES
    place = f"{parents[0]}.*" if named else ".".join(parents)
    valid = list(_PLACES[place].model_fields)
    elsewhere = [other for other, model in _PLACES.items() if key in model.model_fields]
    # Of a key that lacks a letter to be right here, it is no matter that another place has one of its name.
    if elsewhere and not get_close_matches(key, valid, 1, cutoff=0.85):
        return f"unknown key here; it belongs {f'under {elsewhere[0]!r}' if elsewhere[0] else 'at the top'}"
    close = nearest(key, valid, 1)
    return f"unknown key; did you mean {close[0]!r}?" if close else f"unknown key; valid here: {', '.join(valid)}"


def _invalid(file: Path, field: str, message: str) -> InvalidSpec:
    where = f"{file}: {field}" if field else str(file)
    message = message if message.endswith("?") else f"{message.rstrip('.')}."
    return InvalidSpec(f"{where}: {message}", param=field or None)
