"""Settings on their way out: to the environment of a process, and to a person's eyes without the secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from catalog.errors import nearest
from tasks.settings import Settings

PREFIX = "ROOST_"
HIDDEN = "***"
_URLS = frozenset({"database_url", "broker_url", "notify_url"})
_NOT_SETTINGS = frozenset({"ROOST_VERSION", "ROOST_URL", "ROOST_API_KEY"})
"""Read by the compose file (the version of the images) and by the client and its commands (where the server is)."""
_SECRET_WORDS = ("pass", "secret", "token", "key")


@dataclass(frozen=True)
class Shown:
    """One row of the settings as printed."""

    variable: str
    value: str
    source: str
    description: str


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def exported(settings: Settings) -> dict[str, str]:
    """What a child process needs to read the same settings: those that were given, as variables."""
    values = {name: _text(getattr(settings, name)) for name in sorted(settings.model_fields_set)}
    # Children run in the data folder, so paths relative to ours must not stay so.
    values["data_dir"] = str(settings.data_dir.absolute())
    for name, folders in (("catalog", settings.catalog_folders), ("model_folders", settings.model_folder_paths)):
        if folders:
            values[name] = ":".join(str(folder.absolute()) for folder in folders)
    return {variable(name): value for name, value in values.items()}


def merged(base: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """An environment with these settings and no others of ours."""
    return {name: value for name, value in base.items() if not name.startswith(PREFIX)} | exported(settings)


def unknown(environment: Mapping[str, str]) -> list[str]:
    """A line for each variable of ours that no setting reads, with the nearest that one does read."""
    names = {variable(name).removeprefix(PREFIX) for name in Settings.model_fields}
    others = sorted(name for name in environment if name.upper().startswith(PREFIX) and name not in _NOT_SETTINGS)
    lines: list[str] = []
    for name in others:
        rest = name.upper().removeprefix(PREFIX)
        if rest in names:
            continue
        near = nearest(rest, sorted(names), 1)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else "`roost config` lists those there are"
        lines.append(f"{name} is no setting and does nothing: {hint}")
    return lines


def shown(settings: Settings, started_here: Mapping[str, str] | None = None) -> list[Shown]:
    """Every setting with the place its value comes from; `started_here` names the servers that the stack runs."""
    here = started_here or {}
    return [
        Shown(
            variable=variable(name),
            value=masked(name, _text(getattr(settings, name))),
            source=here.get(name) or ("environment" if name in settings.model_fields_set else "default"),
            description=field.description or "",
        )
        for name, field in type(settings).model_fields.items()
    ]


def masked(name: str, value: str) -> str:
    """A setting's value without what must not be seen."""
    if name == "flower_auth":
        return f"{value.partition(':')[0]}:{HIDDEN}" if value else value
    if name in _URLS:
        return ";".join(masked_url(part) for part in value.split(";"))
    return value


def masked_url(url: str) -> str:
    """A URL with its password, wherever it stands, replaced."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    netloc = f"{user}:{HIDDEN}{at}{host}" if colon else parts.netloc
    query = "&".join(_masked_pair(pair) for pair in parts.query.split("&"))
    return f"{parts.scheme}://{netloc}{parts.path}{'?' if query else ''}{query}" if url else url


def _masked_pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={HIDDEN}" if equals and any(word in name.lower() for word in _SECRET_WORDS) else pair


def _text(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)
