"""The library's processors of texts with images, made without what only videos need.

Image processors are those for Pillow, and the tokenizer keeps a caller's text from becoming control tokens. Imports
transformers: never import this at the top of an adapter's module.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto import processing_auto

from catalog.modelfolder import read_json
from engine.errors import LoadFailed, LoadReason
from engine.generation.chat import GuardedTokenizer
from engine.vision import read_image_processor

_CONFIGS = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")


def read_processor(folder: Path, tokenizer: GuardedTokenizer) -> Any:
    """The processor that a folder's config names, with this tokenizer. Raises LoadFailed where there is none."""
    kind = _kind(folder)
    library = sys.modules[kind.__module__]
    if getattr(library, "num2words", True) is None:
        # Numbers in words are for the times of a video; the library asks for a package before there is one.
        library.num2words = str  # type: ignore[attr-defined]  # as above

    class WithoutVideos(kind):  # type: ignore[misc,valid-type]  # known at the load alone
        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            """Nothing to check: it is made here."""

    settings = read_json(folder / _CONFIGS[0])
    taken = inspect.signature(kind.__init__).parameters
    given = {name: value for name, value in settings.items() if name in taken}
    given |= {"image_processor": read_image_processor(folder), "tokenizer": tokenizer}
    given["chat_template"] = _template(folder, tokenizer)
    if "video_processor" in taken:
        given["video_processor"] = None
    return WithoutVideos(**given)


def _kind(folder: Path) -> Any:
    named = next((name for file in _CONFIGS if (name := read_json(folder / file).get("processor_class"))), None)
    model_type = str(read_json(folder / "config.json").get("model_type"))
    mapped: Any = vars(processing_auto)["PROCESSOR_MAPPING_NAMES"]
    kind = getattr(transformers, str(mapped.get(model_type) or named), None)
    if kind is None:
        message = f"{folder} names the processor {named!r}, which the installed transformers does not have: upgrade it."
        raise LoadFailed(message, LoadReason.DEPENDENCY)
    return kind


def _template(folder: Path, tokenizer: Any) -> Any:
    """The chat template: of a file of its own, or the tokenizer's."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    return read_json(folder / "chat_template.json").get("chat_template") or tokenizer.chat_template
