"""What families of torch modules have in common: bytes, load, unload, parking, running out of memory.

A family says how its library reads a folder (`read`) and how it answers a batch (`run`); the rest is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from catalog.modelfolder import read_json, weight_files
from catalog.schema import Spec
from engine.adapters.base import Adapter, LoadOptions
from engine.building import BUILDING
from engine.checkpoint import Shape, read_shape, read_weights
from engine.errors import LoadFailed, LoadReason, OutOfMemory
from engine.failures import load_failure, out_of_memory
from engine.hostcopy import HostCopy
from engine.pickled import folder_weights
from engine.types import Footprint

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

FLOAT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class TorchOptions(LoadOptions):
    """How the weights are held. Half types need a card, or a recent CPU to gain by them."""

    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


class TorchAdapter(Adapter):
    """A model whose weights are one torch module. `module` is there between `load` and `unload`."""

    options = TorchOptions

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, TorchOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        if folder is None:
            raise LoadFailed(f"{spec.id} needs a 'source' in its YAML to be of this family.", LoadReason.CONFIG)
        self.dtype = options.dtype
        self.files: Path = folder
        self.module: torch.nn.Module | None = None
        self._parked: HostCopy | None = None
        self._away = False

    @abstractmethod
    def read(self) -> torch.nn.Module:
        """The module, read from `files` in `dtype`, in evaluation mode; the caller moves it to the device.

        Whatever the library raises becomes LoadFailed. Keep what else it gives (tokenizer, processor) on the adapter.
        """

    def warm_up(self) -> None:
        """One small pass after the load: it shows that the model is what its YAML says. Raises LoadFailed if not."""

    def forget(self) -> None:
        """Drop what `read` kept besides the module."""

    def footprint(self) -> Footprint:
        """Weights by the headers of the files; a token's activations by the widest point of a layer.

        There a layer holds some seven vectors of its width and the feed-forward's inner values three times, as for the
        encoders that this was measured on.
        """
        size = FLOAT_BYTES[self.dtype]
        shape = self.shape()
        return Footprint(self.weight_bytes(), size * (7 * shape.hidden + 3 * shape.inner))

    def weight_bytes(self) -> int:
        """Bytes of the weights once loaded; of the files' headers, without reading a tensor."""
        size, files = FLOAT_BYTES[self.dtype], weight_files(self.files)
        if not files and "pickle" in self.spec.source.needs:
            return folder_weights(self.spec, self.files, size).bytes
        return read_weights(files, size).bytes

    def shape(self) -> Shape:
        """The sizes in the model's config."""
        return read_shape(read_json(self.files / "config.json"))

    def load(self) -> None:
        """Read, place, warm up. Raises LoadFailed with its reason, or OutOfMemory."""
        try:
            with BUILDING:
                module = self.read().eval().requires_grad_(requires_grad=False)
            if self.device == "cpu":
                _own_memory(module)
            self.module = module.to(self.device)
            self.warm_up()
        except LoadFailed:
            self.unload()
            raise
        except Exception as error:
            self.unload()
            raise load_failure(self.spec.id, error) from error

    def unload(self) -> None:
        """Drop the model, wherever it is."""
        if self._parked is not None:
            self._parked.drop()
        self.module = self._parked = None
        self._away = False
        self.forget()

    def held(self) -> int | None:
        """Bytes of all parameters and buffers, shared ones once; none while the model is parked."""
        if self.module is None:
            return None
        return 0 if self._away else module_bytes(self.module)

    def park(self) -> int | None:
        """Move the weights to pinned host memory. On a CPU they stay where they are: it is the same memory."""
        module = self.module
        if module is None or self._away:
            return None
        if self.device != "cpu":
            self._parked = self.within_memory("parking the model", lambda: HostCopy(module, self.device))
        self._away = True
        return module_bytes(module) if self._parked is None else self._parked.bytes

    def restore(self) -> None:
        """Copy the weights back, where they are gone. Raises OutOfMemory, and the model stays parked."""
        if not self._away:
            raise RuntimeError("restore before park")
        if self._parked is not None:
            self.within_memory("restoring the model", self._parked.restore)
        self._parked = None
        self._away = False

    def ready(self) -> torch.nn.Module:
        """The module, for a run. Raises RuntimeError if it is not there."""
        if self.module is None or self._away:
            raise RuntimeError("run before load or restore")
        return self.module

    def within_memory(self, doing: str, call: Callable[[], T]) -> T:
        """What `call` gives. Raises OutOfMemory, naming what was done, where torch had no memory for it."""
        try:
            return call()
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                raise OutOfMemory(f"There is no memory for {doing}.") from error
            raise


def module_bytes(module: torch.nn.Module) -> int:
    """Bytes of a module's parameters and buffers; tensors that share memory count once."""
    seen: dict[int, int] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        storage = tensor.untyped_storage()
        seen[storage.data_ptr() or id(storage)] = storage.nbytes()
    return sum(seen.values())


def _own_memory(module: torch.nn.Module) -> None:
    """Copy the weights out of the mapped file: a file that somebody cuts short would take the process down."""
    done: dict[int, torch.Tensor] = {}
    for parameter in module.parameters():
        key = parameter.data.data_ptr()
        if key not in done:
            done[key] = parameter.data.clone()
        parameter.data = done[key].view_as(parameter.data)
