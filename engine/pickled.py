"""Weights in a pickle: read only where the model's YAML says that it needs them, and only as tensors.

Torch's reader of tensors alone runs no code of the file. Only the calls import torch.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.modelfolder import weight_files
from catalog.schema import Spec
from engine.checkpoint import Weights, read_names, read_weights
from engine.errors import LoadFailed, LoadReason

if TYPE_CHECKING:
    import torch

PICKLE = "pytorch_model.bin"


def pickled_file(spec: Spec, folder: Path) -> Path | None:
    """The pickle that this model's weights are in; None where they are in safetensors.

    Raises LoadFailed where the folder has neither, or a pickle that the YAML does not allow.
    """
    if weight_files(folder):
        return None
    file = folder / PICKLE
    if not file.is_file():
        raise LoadFailed(f"{folder} has no weights. Fetch the model's files again.", LoadReason.NOT_FOUND)
    if "pickle" not in spec.source.needs:
        message = f"{spec.id} keeps its weights in a pickle, which its YAML does not allow: source.needs: [pickle]."
        raise LoadFailed(message, LoadReason.CONFIG)
    return file


def folder_weights(spec: Spec, folder: Path, float_bytes: int) -> Weights:
    """The tensors of a folder's safetensors or of its allowed pickle, without reading what is in them."""
    file = pickled_file(spec, folder)
    return read_weights(weight_files(folder), float_bytes) if file is None else file_weights(file, float_bytes)


def file_weights(file: Path, float_bytes: int) -> Weights:
    """The tensors of a pickle, without reading what is in them."""
    import torch

    values = total = 0
    for tensor in _tensors(file).values():
        count = math.prod(tensor.shape)
        values += count
        total += count * (float_bytes if tensor.dtype in (torch.float32, torch.float16, torch.bfloat16) else 8)
    return Weights(values, total)


def weight_names(spec: Spec, folder: Path) -> set[str]:
    """The names of all tensors of a folder."""
    file = pickled_file(spec, folder)
    return read_names(weight_files(folder)) if file is None else set(_tensors(file))


def refuse_random(spec: Spec, module: torch.nn.Module, names: set[str]) -> None:
    """Raise LoadFailed if a parameter of the module has none of these names: a library made it up at random.

    A pooler is often left out of files, and none of these models reads it.
    """
    named = dict(module.named_parameters(remove_duplicate=False))
    there = {parameter.data_ptr() for name, parameter in named.items() if name in names}
    wanted = ((name, parameter) for name, parameter in named.items() if ".pooler." not in name)
    missing = sorted(name for name, parameter in wanted if parameter.data_ptr() not in there)
    if missing:
        message = f"The files of {spec.id} lack {len(missing)} tensors, such as {missing[0]}: fetch them again."
        raise LoadFailed(message, LoadReason.CORRUPT)


def read_pickle(file: Path) -> dict[str, torch.Tensor]:
    """The tensors in a pickle. Raises torch's own error for one that holds anything else."""
    import torch

    found: dict[str, torch.Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return found


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    """What is in a pickle, without its values. Raises LoadFailed for one that holds anything but tensors."""
    import torch

    try:
        found: dict[str, torch.Tensor] = torch.load(file, map_location="meta", weights_only=True)
    except Exception as error:
        message = f"{file} is cut short, or holds more than tensors, and is not read: fetch it again."
        raise LoadFailed(message, LoadReason.CORRUPT) from error
    return found
