"""Models that read an image by writing a text about it: what Florence-2, Donut and their kind have in common.

Images of one call share task, labels and limits, so they go through one generation together. A text that the limit cut
off is marked as truncated. A prompt that the model has no positions for is refused.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.options import ExtractOptions
from catalog.schema import Spec
from catalog.terms import Verb
from engine.adapters.base import LoadOptions
from engine.errors import EngineError, ItemRejected, WrongCount
from engine.images import only_image
from engine.types import Batch, Outcome, Output
from engine.vision import VisionAdapter

if TYPE_CHECKING:
    import torch
    from PIL import Image


@dataclass(frozen=True, slots=True)
class Written:
    """What the model wrote of one image: its token ids, without what came before them, and whether they ended."""

    ids: list[int]
    ended: bool


class PictureReader(VisionAdapter):
    """One such model on one device."""

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        self._interrupted = threading.Event()

    @classmethod
    def group(cls, verb: Verb, options: Any) -> Hashable:
        """What one generation has once for all of its images."""
        labels = None if options.labels is None else tuple(options.labels)
        return (options.task, labels, options.instruction, options.max_new_tokens, options.num_beams)

    @abstractmethod
    def prompt(self, options: ExtractOptions) -> Any | EngineError:
        """What the model is asked, in the family's own form; or why these options cannot be had.

        One with more tokens than the model has positions for is among the latter: see `too_long`.
        """

    @abstractmethod
    def begun(self, prompt: Any) -> int:
        """How many tokens the decoder has before it writes its first."""

    @abstractmethod
    def see(self, image: Image.Image, prompt: Any) -> Mapping[str, torch.Tensor]:
        """What the library's processor makes of an image, with one row. Nothing of the image itself is kept."""

    @abstractmethod
    def write(
        self, model: Any, seen: Mapping[str, torch.Tensor], prompt: Any, given: Mapping[str, Any]
    ) -> torch.Tensor:
        """The ids that `model.generate` gives for these rows; `given` are arguments for it."""

    @abstractmethod
    def parse(self, written: Written, size: tuple[int, int], options: ExtractOptions) -> Mapping[str, Any]:
        """The fields of an output for an image of this width and height."""

    def too_long(self, tokens: int, most: int, param: str) -> ItemRejected:
        """That what is asked has so many tokens, where there is room for no more than `most`."""
        message = f"What is asked has {tokens} tokens; {self.spec.id} has room for {most}. Ask for less at once."
        return ItemRejected(message, param=param)

    def interrupt(self) -> None:
        """Have a generation in progress end at its next token."""
        self._interrupted.set()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """What the model reads in each image."""
        model: Any = self.ready()
        options: ExtractOptions = batch.entries[0].work.options
        prompt = self.prompt(options)
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        sizes: dict[int, tuple[int, int]] = {}
        seen: list[Mapping[str, torch.Tensor]] = []
        for place, entry in enumerate(batch.entries):
            image = prompt if isinstance(prompt, EngineError) else only_image(entry.item.payload)
            if isinstance(image, EngineError):
                outcomes[place] = image
                continue
            # An image is large and what the model sees of it is not, so one alone is there at a time.
            seen.append(self.see(image, prompt))
            sizes[place] = image.size
            del image
        if seen:
            found = self.within_memory(
                f"reading {len(seen)} images", lambda: self._written(model, seen, prompt, options)
            )
            for (place, size), written in zip(sizes.items(), found, strict=True):
                fields = self.parse(written, size, options)
                usage = {"images": 1, "completion_tokens": len(written.ids)}
                outcomes[place] = Output(fields, tokens=len(written.ids), truncated=not written.ended, usage=usage)
        return [outcome or WrongCount() for outcome in outcomes]

    def _written(
        self, model: Any, seen: Sequence[Mapping[str, torch.Tensor]], prompt: Any, options: ExtractOptions
    ) -> list[Written]:
        import torch

        most = decoder_positions(model) - self.begun(prompt)
        given: dict[str, Any] = {
            "max_new_tokens": min(options.max_new_tokens or most, most),
            "do_sample": False,
            "stopping_criteria": [self._stop],
        }
        if options.num_beams is not None:
            given["num_beams"] = options.num_beams
        rows = {name: self.sent(torch.cat([one[name] for one in seen])) for name in seen[0]}
        with torch.inference_mode():
            ids = self.write(model, rows, prompt, given).tolist()
        ends, padding = _ids(model.generation_config.eos_token_id), model.generation_config.pad_token_id
        return [_own(row, ends, padding) for row in ids]

    def _stop(self, ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        """The library asks this after every token."""
        import torch

        if self._interrupted.is_set():
            raise RuntimeError("interrupted")
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)


_UNSAID = 1024
"""Positions of a decoder whose config does not say."""


def decoder_positions(model: Any) -> int:
    """How many tokens the decoder can have in all, those that begin its text among them."""
    config = model.config
    for part in (getattr(config, "text_config", None), getattr(config, "decoder", None), config):
        positions = getattr(part, "max_position_embeddings", None)
        if isinstance(positions, int):
            return positions
    return _UNSAID


def _ids(found: Any) -> frozenset[int]:
    return frozenset(found) if isinstance(found, list) else frozenset({found})


def _own(row: list[int], ends: frozenset[int], padding: int | None) -> Written:
    """A row without its first token, which begins every text, and without its end and what fills it up."""
    body = row[1:]
    for place, token in enumerate(body):
        if token in ends:
            return Written(body[:place], ended=True)
    while body and body[-1] == padding:
        body.pop()
    return Written(body, ended=len(body) < len(row) - 1)
