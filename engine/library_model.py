"""Models that a class of transformers reads from a folder: none of their weights is made up."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from catalog.modelfolder import missing_weights
from engine.errors import LoadFailed, LoadReason
from engine.pickled import pickled_file
from engine.pretrained import classified
from engine.torch_adapter import TorchAdapter

if TYPE_CHECKING:
    import torch


class LibraryAdapter(TorchAdapter):
    """A model of one torch module, and of what else `read_parts` keeps."""

    pickles: ClassVar[bool] = False
    """Whether the family reads weights in a pickle, as tensors, where a model's YAML needs that."""

    @abstractmethod
    def read_parts(self) -> torch.nn.Module:
        """The module, with what else is needed kept on the adapter. What the library raises is told by its kind."""

    def read(self) -> torch.nn.Module:
        """As `read_parts`. Raises LoadFailed with its reason."""
        lacking = missing_weights(self.files, pickle=self.pickles and "pickle" in self.spec.source.needs)
        if lacking is not None:
            raise LoadFailed(f"{self.files} {lacking}. Fetch the model's files again.", LoadReason.NOT_FOUND)
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        try:
            return self.read_parts()
        except LoadFailed:
            raise
        except Exception as error:
            raise classified(self.spec.id, error) from error

    def read_model(self, kind: str) -> torch.nn.Module:
        """The model by the name of the library's class. Raises LoadFailed where the files lack a weight."""
        safe = not self.pickles or pickled_file(self.spec, self.files) is None
        return whole_model(self.spec.id, kind, self.files, dtype=self.dtype, safetensors=safe)


def whole_model(
    name: str, kind: str, folder: Path, *, dtype: str, safetensors: bool, code: bool = False
) -> torch.nn.Module:
    """What the library's class `kind` reads from a folder. Raises LoadFailed where the files lack a weight.

    `code` lets it run what comes with the model.
    """
    import torch
    import transformers

    read: Any = getattr(transformers, kind).from_pretrained(
        folder,
        local_files_only=True,
        trust_remote_code=code,
        use_safetensors=safetensors,
        dtype=getattr(torch, dtype),
        output_loading_info=True,
    )
    module: torch.nn.Module = read[0]
    absent = sorted(read[1]["missing_keys"])
    if absent:
        # The library makes them up at random, with a line in the log.
        message = f"The files of {name} lack {absent[0]}: it is no model of this family, or cut short."
        raise LoadFailed(message, LoadReason.CORRUPT)
    return module
