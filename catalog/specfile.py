"""One model's YAML file, read strictly: whatever is wrong becomes an InvalidSpec that names the file and the field.

Refused besides what the schema refuses: keys given twice (YAML would keep the last in silence), anchors and aliases
(`extends` serves, and they can blow a small file up), files over 256 KiB.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from catalog.errors import InvalidOption, InvalidSpec, nearest
from catalog.options import parse_options
from catalog.schema import CostCoefficients, EncodeFacts, PackageWeights, Profile, Source, Spec, Tasks
from catalog.terms import Verb

MAX_BYTES = 256 * 1024

_MODELS: tuple[type[BaseModel], ...] = (Spec, Source, PackageWeights, Tasks, EncodeFacts, CostCoefficients, Profile)
_KEYS = sorted({key for model in _MODELS for key in model.model_fields})


def read_spec(file: Path) -> Spec:
    """The spec in `file`; a relative `source.path` is taken from the file's own folder. Raises InvalidSpec."""
    try:
        spec = Spec.model_validate(_mapping(file))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise _invalid(file, field, _advice(first["type"], field, first["msg"])) from error
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
        data = file.read_bytes()
    except OSError as error:
        raise _invalid(file, "", f"the file cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise _invalid(file, "", f"the file has {len(data)} bytes, more than {MAX_BYTES}")
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
    if spec.tasks.encode is None:
        return
    for name in ("", *spec.profiles):
        try:
            parse_options(spec, Verb.ENCODE, {}, merged(spec, name, "run"))
        except InvalidOption as error:
            owner = f"profiles.{name}.run" if name else "run"
            raise _invalid(file, (error.param or "options").replace("options", owner, 1), error.message) from error


def _advice(kind: str, field: str, message: str) -> str:
    if kind != "extra_forbidden":
        return message.removeprefix("Value error, ")
    hint = nearest(field.rsplit(".", 1)[-1], _KEYS, 1)
    return f"unknown key; did you mean {hint[0]!r}?" if hint else "unknown key"


def _invalid(file: Path, field: str, message: str) -> InvalidSpec:
    where = f"{file}: {field}" if field else str(file)
    return InvalidSpec(f"{where}: {message.rstrip('.')}.", param=field or None)
