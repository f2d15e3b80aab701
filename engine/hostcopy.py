"""A torch module's weights moved to host memory and back, so that an evicted model returns as a copy, not as a load.

Beside a card the host memory is pinned, so that the card reads it by itself and at full speed. Weights that share
memory go on sharing it. Only the calls import torch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_ALIGNMENT = 256
"""Each piece begins at a multiple of so many bytes; no element type needs more."""


@dataclass(frozen=True, slots=True)
class _Look:
    """One tensor and where in its piece of memory it looks, in elements."""

    tensor: torch.Tensor
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def into(self, memory: torch.Tensor, start: int) -> None:
        """Let the tensor look into `memory`, where its piece begins at byte `start`."""
        empty = memory.new_empty(0, dtype=self.tensor.dtype)
        place = start // self.tensor.itemsize + self.offset
        self.tensor.data = empty.set_(memory.untyped_storage(), place, self.shape, self.stride)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One piece of device memory of `size` bytes, the tensors that look into it, and where it lies in host memory."""

    start: int
    size: int
    looks: tuple[_Look, ...]


class HostCopy:
    """The weights of one parked module, all in one block of host memory.

    The module itself stays whole: until `restore` its weights are on the CPU. Nothing may run on it while it moves.
    """

    def __init__(self, module: torch.nn.Module, device: str) -> None:
        """Move them there and leave nothing on the device. Raises torch's own error if it cannot be had."""
        import torch

        self._device = torch.device(device)
        self._pieces = tuple(_pieces(module))
        size = self._pieces[-1].start + self._pieces[-1].size if self._pieces else 0
        self._memory = torch.empty(size, dtype=torch.uint8)
        self._pinned = self._device.type == "cuda" and _pin(self._memory)
        self._stream: Any = None
        try:
            self._copy_out()
        except BaseException:
            # Memory that is freed while it is pinned cannot be pinned again.
            self.drop()
            raise
        for piece in self._pieces:
            for look in piece.looks:
                look.into(self._memory, piece.start)

    @property
    def bytes(self) -> int:
        """What the weights take in host memory."""
        return self._memory.nbytes

    def restore(self) -> None:
        """Bring the weights back and give the host memory up. Raises torch's own error if they find no room.

        They stay parked then: room for all is taken before the first one moves.
        """
        import torch

        # Taken outside the stream, so that the allocator gives them to anybody once they are free again.
        rooms = [torch.empty(piece.size, dtype=torch.uint8, device=self._device) for piece in self._pieces]
        with self._copying():
            for piece, room in zip(self._pieces, rooms, strict=True):
                room.copy_(self._host(piece), non_blocking=True)
        self._wait()
        for piece, room in zip(self._pieces, rooms, strict=True):
            for look in piece.looks:
                look.into(room, 0)
        self.drop()

    def drop(self) -> None:
        """Give the host memory up. A module that was not restored must not be used any more."""
        import torch

        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._memory.data_ptr())  # type: ignore[no-untyped-call]
        self._pinned = False
        self._pieces = ()
        self._memory = torch.empty(0, dtype=torch.uint8)

    def _copy_out(self) -> None:
        import torch

        if self._device.type == "cuda":
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with self._copying():
            for piece in self._pieces:
                memory = piece.looks[0].tensor.untyped_storage()
                source = torch.empty(0, dtype=torch.uint8, device=self._device).set_(memory, 0, (piece.size,), (1,))
                self._host(piece).copy_(source, non_blocking=True)
        self._wait()

    def _host(self, piece: _Piece) -> torch.Tensor:
        return self._memory[piece.start : piece.start + piece.size]

    def _copying(self) -> AbstractContextManager[Any]:
        import torch

        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._stream)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def _pin(memory: torch.Tensor) -> bool:
    """Pin exactly this memory; torch's own allocator would take the next power of two. False if the system refuses."""
    import torch

    if not memory.nbytes:
        return False
    found = torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)  # type: ignore[no-untyped-call]
    if int(found) != 0:
        log.warning("%d bytes of host memory could not be pinned (%s), so weights return slowly", memory.nbytes, found)
    return int(found) == 0


def _pieces(module: torch.nn.Module) -> Iterator[_Piece]:
    """The module's memory by pieces, each once, however many tensors look into it."""
    shared: dict[int, dict[int, torch.Tensor]] = {}
    for tensor in _tensors(module):
        if tensor.untyped_storage().nbytes():
            shared.setdefault(tensor.untyped_storage().data_ptr(), {})[id(tensor)] = tensor
    start = 0
    for tensors in shared.values():
        size = next(iter(tensors.values())).untyped_storage().nbytes()
        looks = tuple(_Look(t, int(t.storage_offset()), tuple(t.shape), t.stride()) for t in tensors.values())
        yield _Piece(start, size, looks)
        start += -(-size // _ALIGNMENT) * _ALIGNMENT


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Parameters, buffers, tensors that a module keeps as plain attributes, and what those are views of.

    A view keeps its base, and so the base's memory, whatever it is made to look into.
    """
    import torch

    for part in module.modules():
        for tensor in (*part._parameters.values(), *part._buffers.values(), *vars(part).values()):
            if isinstance(tensor, torch.Tensor):
                yield tensor
                if tensor._base is not None:
                    yield tensor._base
