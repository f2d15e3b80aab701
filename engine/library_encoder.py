"""Text encoders of sentence-transformers that give another thing than one dense vector: how they are read.

The modules are the library's own. Weights are read from safetensors, or as tensors from a pickle that is allowed; code
of the model's own runs only where that is allowed. Only calls import torch.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from catalog.modelfolder import weight_files
from engine.errors import LoadFailed
from engine.pretrained import ONE_ATTENTION, classified, folder_weights, refuse_random, refuse_unsafe, rescales
from engine.text_encoder import TextEncoderAdapter
from engine.torch_adapter import FLOAT_BYTES

if TYPE_CHECKING:
    import torch


class LibraryEncoderAdapter(TextEncoderAdapter):
    """A model of sentence-transformers on one device. A family says which class reads it, and what its answer is."""

    foreign: tuple[str, ...] = ()
    """Module types of other libraries that sentence-transformers reads as its own."""

    @abstractmethod
    def build(self, source: str, **settings: Any) -> Any:
        """The library's model of a folder, by the library's own class and these of its arguments."""

    @abstractmethod
    def understand(self, model: Any) -> None:
        """Take what the family needs from the model, once read. Raises LoadFailed where it misfits the YAML."""

    def weight_bytes(self) -> int:
        """Bytes of the weights of all modules once loaded."""
        return folder_weights(self.files, FLOAT_BYTES[self.dtype], pickle=self._pickle).bytes

    @property
    def _pickle(self) -> bool:
        return "pickle" in self.spec.source.needs

    @property
    def _code(self) -> bool:
        return "code" in self.spec.source.needs

    def read(self) -> torch.nn.Module:
        """The model as the library reads it. Raises LoadFailed."""
        refuse_unsafe(self.spec.id, self.files, self.foreign, pickle=self._pickle, code=self._code)
        try:
            return self._read()
        except LoadFailed:
            raise
        except Exception as error:
            raise classified(self.spec.id, error) from error

    def _read(self) -> torch.nn.Module:
        import torch
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()

        def build(attention: str) -> Any:
            return self.build(
                str(self.files),
                device="cpu",
                local_files_only=True,
                trust_remote_code=self._code,
                model_kwargs={
                    "use_safetensors": bool(weight_files(self.files)),
                    "dtype": getattr(torch, self.dtype),
                    "attn_implementation": attention,
                },
            )

        try:
            model = build(self.attention)
        except ValueError as error:
            if ONE_ATTENTION not in str(error):
                raise
            model = build("eager")
        # The library's card refers back to the model: in such a ring the weights outlive the last use of them.
        model.model_card_data.model = None
        refuse_random(self.spec.id, model, folder_weights(self.files, 1, pickle=self._pickle))
        for part in model.modules():
            config: Any = getattr(part, "config", None)
            if getattr(config, "use_cache", False):
                # A decoder that embeds would keep keys and values that nobody reads.
                config.use_cache = False
            if config is not None and rescales(config):
                self.lock = threading.Lock()
        self.understand(model)
        read: torch.nn.Module = model
        return read
