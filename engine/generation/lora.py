"""LoRA adapters of a model, by name: found, read when first asked for, and put over the weights in one of a few slots.

What the slots may take is declared before the load, so the device's books hold whatever is in them. Only calls import
torch and peft.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from catalog.modelfolder import read_json
from catalog.schema import LoraSource
from engine.checkpoint import Shape, read_weights
from engine.errors import EngineError, LoadFailed, LoadReason
from engine.failures import load_failure

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_UNSET = object()
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_SETTINGS = {
    "task_type",
    "r",
    "target_modules",
    "exclude_modules",
    "lora_alpha",
    "lora_dropout",
    "fan_in_fan_out",
    "bias",
    "lora_bias",
    "use_rslora",
    "use_dora",
    "modules_to_save",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
}
"""What an adapter's file may say of how it is computed."""
_NOTES = {"peft_type", "peft_version", "base_model_name_or_path", "revision", "inference_mode", "auto_mapping"}
"""What it may say besides, and nothing comes of it."""
_OFF: dict[str, Any] = {"runtime_config": {"ephemeral_gpu_offload": False}}
"""Values that say nothing, where they are neither empty nor the library's own."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Lora:
    """An adapter that was read: its settings and its tensors, in host memory."""

    name: str
    config: Any
    tensors: dict[str, torch.Tensor]


def lora_folder(name: str, source: LoraSource, *, fetch: bool) -> Path:
    """The folder with an adapter's files; from the hub where it is not on this machine and `fetch` allows.

    Raises LoadFailed with its reason.
    """
    try:
        folder = Path(source.path) if source.path is not None else _from_hub(name, source, fetch=fetch)
    except Exception as error:
        failure = load_failure(f"LoRA {name}", error)
        raise failure from error
    lacking = next((file for file in (CONFIG, WEIGHTS) if not (folder / file).is_file()), None)
    if lacking is not None:
        raise LoadFailed(f"The LoRA {name} has no {lacking} in {folder}: put its files there.", LoadReason.NOT_FOUND)
    return folder


def slot_bytes(sources: Mapping[str, LoraSource], rank: int, shape: Shape, float_bytes: int) -> int:
    """Bytes that one slot may take: the largest adapter that is on this machine, or what one of `rank` takes.

    That is for an adapter of every projection of a layer: four of attention, three of the feed-forward.
    """
    found = shape.layers * rank * (11 * shape.hidden + 3 * shape.inner) * float_bytes
    for name, source in sources.items():
        try:
            folder = lora_folder(name, source, fetch=False)
            found = max(found, read_weights([folder / WEIGHTS], float_bytes).bytes)
        except EngineError:
            # Said to whoever asks for this one.
            continue
    return found


class Loras:
    """The adapters of one loaded model. `slot` is what one of its `slots` may take at most."""

    def __init__(
        self, model: Any, sources: Mapping[str, LoraSource], slots: int, slot: int, dtype: torch.dtype
    ) -> None:
        self._model = model
        self._sources = sources
        self._slots = slots
        self._slot = slot
        self._dtype = dtype
        self._here: dict[str, str] = {}
        self._users: Counter[str] = Counter()
        self._active: object = None
        self._read_before: WeakValueDictionary[str, Lora] = WeakValueDictionary()
        self._count = 0

    def read(self, name: str) -> Lora | None:
        """Read an adapter into host memory; None if it is on the device already. Raises LoadFailed with its reason."""
        if name in self._here:
            return None
        found = self._read_before.get(name)
        if found is None:
            try:
                found = self._read(name)
            except Exception as error:
                failure = load_failure(f"LoRA {name}", error)
                raise failure from error
            self._read_before[name] = found
        return found

    def take(self, name: str, read: Lora | None) -> bool:
        """Hold a slot for one more sequence of an adapter, which the first one puts there. False if none is free now.

        Raises LoadFailed where the adapter does not fit the model.
        """
        if name not in self._here:
            idle = [own for own in self._here if not self._users[own]]
            if len(self._here) >= self._slots and not idle:
                return False
            if len(self._here) >= self._slots:
                self._drop(idle[0])
            self._put(name, read or self._read(name))
        # The one that was used last goes last.
        self._here[name] = self._here.pop(name)
        self._users[name] += 1
        return True

    def release(self, name: str) -> None:
        """A sequence of this adapter has ended."""
        self._users[name] -= 1

    def use(self, name: str | None) -> None:
        """Compute with this adapter from now on; None for the model alone."""
        if name == self._active or not self._here:
            return
        if name is None:
            self._model.disable_adapters()
        else:
            self._model.enable_adapters()
            self._model.set_adapter(self._here[name])
        self._active = name

    def _read(self, name: str) -> Lora:
        from safetensors.torch import load_file

        folder = lora_folder(name, self._sources[name], fetch=True)
        size = read_weights([folder / WEIGHTS], self._dtype.itemsize).bytes
        if size > self._slot:
            message = f"The LoRA {name} takes {size} bytes, a slot {self._slot}: raise the load option lora_rank."
            raise LoadFailed(message, LoadReason.CONFIG)
        return Lora(name, _config(name, read_json(folder / CONFIG)), load_file(folder / WEIGHTS))

    def _put(self, name: str, read: Lora) -> None:
        own = f"slot{self._count}"
        self._count += 1
        # That there is more than one is what is wanted.
        warnings.filterwarnings("ignore", message="Already found a `peft_config`")
        try:
            self._model.load_adapter(
                peft_config=read.config, adapter_state_dict=dict(read.tensors), adapter_name=own, hotswap=False
            )
            for path, parameter in self._model.named_parameters():
                if own in path.split("."):
                    parameter.data = parameter.data.to(self._dtype)
                    parameter.requires_grad_(requires_grad=False)
        except Exception as error:
            self._active = _UNSET
            if own in getattr(self._model, "peft_config", {}):
                self._model.delete_adapter(own)
            failure = load_failure(f"LoRA {name}", error)
            raise failure from error
        self._here[name] = own
        self._active = _UNSET

    def _drop(self, name: str) -> None:
        self._model.delete_adapter(self._here.pop(name))
        self._active = _UNSET


def _config(name: str, found: Mapping[str, Any]) -> Any:
    """The library's settings of an adapter whose file says this. Raises LoadFailed for what is not served.

    A setting that is not known here must be as good as left out: some make the library import a module, change the
    weights that all adapters share, or need more than the adapter's tensors.
    """
    from peft import LoraConfig

    if found.get("peft_type") != "LORA":
        raise LoadFailed(f"{name} is no LoRA but another kind of adapter.", LoadReason.CONFIG)
    usual = {one.name: one.default for one in fields(LoraConfig)}
    for key, value in found.items():
        known = key in _SETTINGS or key in _NOTES or (key in _OFF and value == _OFF[key])
        begins = key == "init_lora_weights" and (isinstance(value, bool) or value == "gaussian")
        if not known and not begins and value and value != usual.get(key, MISSING):
            raise LoadFailed(f"The LoRA {name} has the setting {key}, which is not served.", LoadReason.CONFIG)
    return LoraConfig(**{key: value for key, value in found.items() if key in _SETTINGS})


def _from_hub(name: str, source: LoraSource, *, fetch: bool) -> Path:
    from huggingface_hub import constants, snapshot_download

    if source.hub is None:
        raise LoadFailed(f"The LoRA {name} has no source in the model's YAML.", LoadReason.CONFIG)
    offline = not fetch or constants.HF_HUB_OFFLINE
    return Path(
        snapshot_download(
            source.hub, revision=source.revision, allow_patterns=[CONFIG, WEIGHTS], local_files_only=offline
        )
    )
