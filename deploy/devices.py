"""Which devices a machine has, found without importing torch: each gets a worker of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_PROBE_S = 20.0


@dataclass(frozen=True)
class Device:
    """A device and how its worker is told of it."""

    name: str
    """The worker's name: `cpu`, `gpu0`, `gpu1`, …"""
    environment: Mapping[str, str]


CPU = Device("cpu", {"ROOST_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""})


def assigned(setting: str, gpus: list[str]) -> list[Device]:
    """The devices that `ROOST_DEVICE` asks for, given the GPUs that are there, by UUID. Pure.

    `auto` takes every GPU, or the CPU where there is none; `cuda` every GPU; `cuda:N` that one. A GPU that was asked
    for by name and is not there is left to the worker, which says so.
    """
    if setting == "cpu" or (setting == "auto" and not gpus):
        return [CPU]
    if setting in {"auto", "cuda"}:
        return [_gpu(number, uuid) for number, uuid in enumerate(gpus)] or [Device("gpu0", {"ROOST_DEVICE": setting})]
    number = setting.removeprefix("cuda:")
    if number.isdecimal() and int(number) < len(gpus):
        return [_gpu(int(number), gpus[int(number)])]
    return [Device(setting.replace(":", ""), {"ROOST_DEVICE": setting})]


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """UUIDs of the GPUs that torch could use here; none where torch is a CPU build or the driver does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None or not torch_has_cuda():
        return []
    try:
        listed = subprocess.run(  # noqa: S603 - the driver's own program
            [program, "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return chosen_gpus(listed.stdout, environment.get("CUDA_VISIBLE_DEVICES"))


def chosen_gpus(listing: str, visible: str | None) -> list[str]:
    """The UUIDs in nvidia-smi's `index, uuid` lines that CUDA_VISIBLE_DEVICES leaves, in its order. Pure."""
    lines = [line.partition(",") for line in listing.splitlines() if "," in line]
    by_index = {index.strip(): uuid.strip() for index, _, uuid in lines}
    if visible is None:
        return list(by_index.values())
    found: list[str] = []
    for word in (part.strip() for part in visible.split(",")):
        uuid = by_index.get(word) or next((uuid for uuid in by_index.values() if word and uuid.startswith(word)), None)
        if uuid is None:
            # CUDA stops at the first name that it does not know, and so does torch.
            break
        found.append(uuid)
    return found


def torch_has_cuda() -> bool:
    """Whether the installed torch is a CUDA build, told by its files."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return False
    return any((Path(folder) / "lib" / "libtorch_cuda.so").exists() for folder in spec.submodule_search_locations)


def _gpu(number: int, uuid: str) -> Device:
    return Device(f"gpu{number}", {"ROOST_DEVICE": "cuda:0", "CUDA_VISIBLE_DEVICES": uuid})
