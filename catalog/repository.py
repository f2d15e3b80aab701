"""What is known of a model's repository before its weights are read: files, configs, and what it says of itself.

Pure data, the same for a repository of the hub, a copy in the hub's cache, and a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

CONFIGS = (
    "*config*.json",
    "modules.json",
    "artifact.metadata",
    "*/config.json",
    "model.safetensors.index.json",
)
"""The files that say what a model is; small ones, and none that runs."""

FIRST_CONFIGS = ("config.json", "modules.json", "gliner_config.json", "glirel_config.json", "adapter_config.json")
"""A model has one of these in its root."""

MOST_CONFIG_BYTES = 16 * 2**20
"""A larger one is no config."""

MOST_CONFIGS = 64
"""So many are read of one repository, those of its root first; anybody can put any number there."""

_FLOAT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


@dataclass(frozen=True, slots=True)
class Repository:
    """One revision of a repository. `files` has the size of each file by its path, 0 where that is not known.

    `configs` holds the JSON of the files that `is_config` names, `revision` what names these very files, and
    `parameters` the weights that the hub has counted, or 0.
    """

    revision: str
    files: Mapping[str, int]
    configs: Mapping[str, Any] = field(default_factory=dict)
    parameters: int = 0
    licence: str = ""

    def mapping(self, name: str) -> Mapping[str, Any]:
        """The mapping in a config; empty where there is no such file, or it holds something else."""
        found = self.configs.get(name)
        return found if isinstance(found, Mapping) else {}

    def ending(self, suffix: str) -> list[str]:
        """The files of the root, and of the modules below it, that end so."""
        return sorted(name for name in self.files if name.endswith(suffix) and name.count("/") <= 1)

    def count_parameters(self) -> int:
        """How many weights there are: as the hub counts them, else by the bytes of the weights' files."""
        if self.parameters:
            return self.parameters
        config = self.mapping("config.json")
        kind = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        total = self.mapping("model.safetensors.index.json").get("metadata", {}).get("total_size", 0)
        names = self.ending(".safetensors") or self.ending(".bin")
        return int(total or sum(self.files[name] for name in names)) // _FLOAT_BYTES.get(kind, 4)


def config_files(files: Mapping[str, int]) -> list[str]:
    """The files that are read to find out what a model is."""
    found = [name for name, size in files.items() if is_config(name, size)]
    return sorted(found, key=lambda name: (name.count("/"), name))[:MOST_CONFIGS]


def is_config(name: str, size: int = 0) -> bool:
    """Whether a file of a repository is read to find out what the model is."""
    hidden = any(part.startswith(".") for part in name.split("/"))
    return (
        not hidden
        and name.count("/") <= 1
        and size <= MOST_CONFIG_BYTES
        and any(fnmatch(name, pattern) for pattern in CONFIGS)
    )
