"""What the families of models that see have in common: how a folder is read, and one picture for each item.

Image processors are those that the library has for Pillow, called by name: its automatic choice asks for torchvision,
and gives slightly other pixels. Weights are read from safetensors, or as tensors from a pickle where a model's YAML
needs one; no code that comes with a model is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.modelfolder import read_json
from catalog.tokenizer import PlainTokenizer, Tokens
from engine.checkpoint import Shape, read_shape
from engine.errors import LoadFailed, LoadReason
from engine.library_model import LibraryAdapter
from engine.types import Footprint

if TYPE_CHECKING:
    import torch


class VisionAdapter(LibraryAdapter):
    """A model of images, with its image processor and tokenizer: `processor` and `tokenizer` while it is loaded."""

    pickles = True

    def forget(self) -> None:
        """Drop the processor and the tokenizer."""
        self.processor: Any = None
        self.tokenizer: Any = None

    def read_kind(self, kinds: Mapping[str, str]) -> tuple[Any, Any]:
        """The model by the library's class for its `model_type`, with its processor; and the library's own tokenizer.

        Raises LoadFailed for a model of another type.
        """
        model_type = str(read_json(self.files / "config.json").get("model_type"))
        if model_type not in kinds:
            message = f"{self.spec.id} is a {model_type!r}; this family has {' and '.join(kinds)}."
            raise LoadFailed(message, LoadReason.CONFIG)
        module = self.read_model(kinds[model_type])
        tokenizer = read_tokenizer(self.files)
        self.processor = read_image_processor(self.files)
        self.tokenizer = plain_tokenizer(tokenizer)
        return module, tokenizer

    def shape(self) -> Shape:
        """The sizes of the part that sees, or of the whole where it is not told apart."""
        config = read_json(self.files / "config.json")
        for name in ("vision_config", "backbone_config"):
            if isinstance(config.get(name), dict):
                return read_shape(config[name])
        return read_shape(config.get("vlm_config", config))

    def footprint(self) -> Footprint:
        """As for texts where a length counts tokens; where it counts tiles, an image takes what all its patches do."""
        found = super().footprint()
        if self.spec.unit == "tokens":
            return found
        return Footprint(found.weights, -(-found.per_token * self.patches() // self.spec.image_length))

    def patches(self) -> int:
        """How many vectors an image becomes in the part that sees; a guess where the config does not say."""
        config = read_json(self.files / "config.json")
        own = config.get("vision_config", config)
        side, patch = own.get("image_size"), own.get("patch_size")
        return (side // patch) ** 2 if isinstance(side, int) and isinstance(patch, int) and 0 < patch <= side else 1024

    def sent(self, values: torch.Tensor) -> torch.Tensor:
        """Values on the device; fractions in the type of the weights."""
        import torch

        return values.to(self.device, getattr(torch, self.dtype) if values.is_floating_point() else None)


def image_config(folder: Path) -> dict[str, Any]:
    """What a folder says of how its images are prepared."""
    config = read_json(folder / "preprocessor_config.json")
    found: dict[str, Any] = config or read_json(folder / "processor_config.json").get("image_processor", {})
    return found


def read_image_processor(folder: Path) -> Any:
    """The image processor that a folder's config names, in the library's form for Pillow. Raises LoadFailed."""
    import transformers
    from transformers.models.auto import image_processing_auto

    config = image_config(folder)
    named = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    plain = named.removesuffix("Pil").removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor")
    if not plain:
        model_type = read_json(folder / "config.json").get("model_type", "")
        forms: Any = vars(image_processing_auto)["IMAGE_PROCESSOR_MAPPING_NAMES"].get(model_type, {})
        plain = str(forms.get("pil", "")).removesuffix("Pil")
    kind = getattr(transformers, f"{plain}Pil", None)
    if kind is None:
        message = f"{folder} names the image processor {named!r}, which the library does not have for Pillow."
        raise LoadFailed(message, LoadReason.DEPENDENCY)
    return kind.from_pretrained(folder, local_files_only=True)


def read_tokenizer(folder: Path) -> Any:
    """The library's own tokenizer of a folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


class SlowTokenizer:
    """A tokenizer that the library runs without `tokenizers`, SigLIP's: taken as it is, but for control tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        around = tokenizer.build_inputs_with_special_tokens([_MARK])
        self._first = around.index(_MARK)
        self._last = len(around) - self._first - 1

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text as the model reads it, whole."""
        found: list[list[int]] = self._tokenizer(list(texts), split_special_tokens=True, verbose=False)["input_ids"]
        return [Tokens(ids, [0] * len(ids), self._first, self._last) for ids in found]


_MARK = -1
"""An id that no token has."""


def plain_tokenizer(tokenizer: Any) -> PlainTokenizer | SlowTokenizer:
    """A library's tokenizer as one that takes text as text, whole."""
    if hasattr(tokenizer, "backend_tokenizer"):
        return PlainTokenizer(tokenizer.backend_tokenizer.to_str())
    return SlowTokenizer(tokenizer)
