"""Docling's own layout model where torchvision is missing. Imported in the pool's processes alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docling.models.inference_engines.common.hf_vision_base import HfVisionModelMixin


def do_without_torchvision() -> None:
    """Have the image processor that works on Pillow read pages, if torchvision is not there.

    The layout model is an RT-DETR, whose processor transformers has in both kinds; but what chooses one by itself
    refuses all without torchvision.
    """
    if find_spec("torchvision") is None:
        HfVisionModelMixin._load_preprocessor = _on_pillow  # type: ignore[method-assign, assignment]


def _on_pillow(engine: Any, folder: Path) -> Any:
    from transformers import RTDetrImageProcessorPil

    return RTDetrImageProcessorPil.from_pretrained(str(folder))
