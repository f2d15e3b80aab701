"""Small models for tests, made once and kept in a cache: real weights from packages, or random ones in real layouts.

`folder("clip")` is the folder that `tests/small/clip.py` builds by its `build(folder)`. A model with random weights
says so in the name of its spec: it proves plumbing, and no figure of quality is ever taken from it. Random weights are
the same wherever and whenever they are made. A builder that changes makes its folder anew, since the folder's name
holds a hash of the text of all builders, which share parts.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers


def folder(name: str) -> Path:
    """The folder of a small model, built if it is not there. Processes that want the same one build it once."""
    module = importlib.import_module(f"tests.small.{name}")
    here = sorted(Path(__file__).parent.glob("*.py"))
    text = b"".join(file.read_bytes() for file in here) + transformers.__version__.encode()
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "roost" / "small"
    root.mkdir(parents=True, exist_ok=True)
    made = root / f"{name}-{hashlib.sha256(text).hexdigest()[:16]}"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))
            try:
                # A builder's own seed comes too late for weights that the library draws as it makes the model.
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    module.build(scratch)
                scratch.rename(made)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return made


def package(name: str, *parts: str) -> Path:
    """A folder inside an installed package, found without importing it."""
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"install {name} (see tests/small/packages.txt) in {sys.prefix}")
    return Path(found.submodule_search_locations[0]).joinpath(*parts)
