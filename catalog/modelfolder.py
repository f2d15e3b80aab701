"""Is a model's folder whole? A download cut short leaves files out; loading it would fail late and oddly.

A folder is either plain (config, weights and tokenizer in it) or of sentence-transformers: `modules.json` names a
folder for each module, and the first, often the root itself, holds weights and tokenizer. GLiNER and GLiREL have a
config of their own name. A GGUF file holds all of a model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_INDEX = "model.safetensors.index.json"
_PICKLED_INDEX = "pytorch_model.bin.index.json"
_ROUTER = "router_config.json"
_CONFIGS = ("config.json", "modules.json", "gliner_config.json", "glirel_config.json")


def missing_weights(folder: Path, *, pickle: bool = False) -> str | None:
    """What the folder lacks to be loaded, as the end of a sentence; None if it is whole.

    With `pickle` its weights may be in one where there are no others.
    """
    if not any((folder / name).is_file() for name in _CONFIGS):
        return "has neither config.json nor modules.json"
    files = weight_files(folder) or (pickled_files(folder) if pickle else [])
    if not files and pickle:
        return "has no weights, neither in safetensors nor in a pickle"
    if not files:
        return "has no safetensors weights, and pickled ones are not loaded unless its YAML and ROOST_TRUST allow it"
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        return f"lacks {absent[0]}"
    for entry in read_modules(folder)[1:]:
        path = str(entry.get("path", ""))
        if not str(entry.get("type", "")).endswith("Normalize") and not (folder / path / "config.json").is_file():
            return f"lacks {path}/config.json"
    return None


def missing_gguf(folder: Path) -> str | None:
    """What the folder lacks for llama.cpp; None if it has a GGUF file."""
    return None if any(folder.glob("*.gguf")) else "has no GGUF file"


def missing_tokenizer(folder: Path) -> str | None:
    """What the folder lacks to count tokens; None if it has a tokenizer."""
    return None if find_tokenizer(folder) else "has no tokenizer.json"


def find_tokenizer(folder: Path) -> Path | None:
    """The `tokenizer.json` beside the first module, or in the root."""
    for place in (model_root(folder), folder):
        if (place / "tokenizer.json").is_file():
            return place / "tokenizer.json"
    return None


def model_root(folder: Path) -> Path:
    """The folder with the transformer's own config and weights: that of the first module, else the folder itself.

    Where the first module is a router, it is the first one on the way of documents.
    """
    modules = read_modules(folder)
    root = folder / str(modules[0].get("path", "")) if modules else folder
    ways = read_json(root / _ROUTER).get("structure")
    way = ways.get("document") if isinstance(ways, dict) else None
    return root / str(way[0]) if isinstance(way, list) and way else root


def module_folders(folder: Path) -> list[tuple[str, Path]]:
    """The type of each module of a folder and where its files are; behind a router those of every way."""
    found: list[tuple[str, Path]] = []
    for entry in read_modules(folder):
        place = folder / str(entry.get("path", ""))
        found.append((str(entry.get("type")), place))
        routed = read_json(place / _ROUTER).get("types")
        found += [(str(kind), place / str(name)) for name, kind in routed.items()] if isinstance(routed, dict) else []
    return found


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that are loaded: the shards that an index names, else all beside the config."""
    root = model_root(folder)
    index = read_json(root / _INDEX).get("weight_map")
    if isinstance(index, dict):
        return [root / name for name in sorted({str(name) for name in index.values()})]
    return sorted(root.glob("*.safetensors"))


def pickled_files(folder: Path) -> list[Path]:
    """The pickles that are loaded where there are no safetensors: the shards that an index names, or the one."""
    root = model_root(folder)
    index = read_json(root / _PICKLED_INDEX).get("weight_map")
    if isinstance(index, dict):
        return [root / name for name in sorted({str(name) for name in index.values()})]
    return sorted(root.glob("pytorch_model.bin"))


def read_json(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file; empty if there is no such file or it holds something else."""
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def read_modules(folder: Path) -> list[dict[str, Any]]:
    """The entries of a sentence-transformers folder's `modules.json`; empty where there is none."""
    try:
        data = json.loads((folder / "modules.json").read_bytes())
    except (OSError, ValueError):
        return []
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
