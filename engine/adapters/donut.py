"""Donut: reads an image of a document straight into fields, without OCR, by the task that it was trained for.

The task is the token that begins its text, such as `<s_cord-v2>`: the option `task`, or that of the spec.
Where the text has a place for a question (`{user_input}`, as DocVQA's), `instruction` is the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from catalog.options import ExtractOptions
from engine.errors import EngineError, ItemRejected
from engine.picture_reader import PictureReader, Written, decoder_positions
from engine.vision import read_image_processor, read_tokenizer

if TYPE_CHECKING:
    import torch
    from PIL import Image

_QUESTION = "{user_input}"


class DonutAdapter(PictureReader):
    """One Donut on one device."""

    def read_parts(self) -> torch.nn.Module:
        """The model and its processor."""
        from transformers import DonutProcessor

        self.tokenizer = read_tokenizer(self.files)
        self.processor = DonutProcessor(read_image_processor(self.files), self.tokenizer)
        return self.read_model("VisionEncoderDecoderModel")

    def prompt(self, options: ExtractOptions) -> list[int] | EngineError:
        """The ids that begin the decoder's text."""
        facts = self.spec.tasks.extract
        asked = options.task or (facts.task if facts is not None else None)
        if not asked:
            return ItemRejected(f"{self.spec.id} needs a 'task': the token that begins its text.", param="options.task")
        parts = asked.split(_QUESTION)
        for part in parts:
            if part.startswith("<s_") and part[: part.find(">") + 1] not in self.tokenizer.get_vocab():
                return ItemRejected(
                    f"{self.spec.id} was not trained for the task {asked[:80]!r}.", param="options.task"
                )
        if len(parts) == 1 and options.instruction is not None:
            message = "This task has no place for a question: leave 'instruction' out."
            return ItemRejected(message, param="options.instruction")
        if len(parts) == 1:
            return self._ids(asked, "options.task")
        question = options.instruction or ""
        if not question.strip():
            return ItemRejected("This task answers a question: give it as 'instruction'.", param="options.instruction")
        if any(token in question for token in self.tokenizer.get_added_vocab()):
            return ItemRejected("'instruction' must not hold the model's control tokens.", param="options.instruction")
        return self._ids(asked.replace(_QUESTION, question), "options.instruction")

    def _ids(self, text: str, param: str) -> list[int] | EngineError:
        found: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        most = decoder_positions(self.ready()) - 1
        return found if len(found) <= most else self.too_long(len(found), most, param)

    def begun(self, prompt: Any) -> int:
        """The task, and the question."""
        return len(prompt)

    def see(self, image: Image.Image, prompt: Any) -> Mapping[str, torch.Tensor]:
        """The image's pixels."""
        return {"pixel_values": self.processor(image, return_tensors="pt").pixel_values}

    def write(
        self, model: Any, seen: Mapping[str, torch.Tensor], prompt: Any, given: Mapping[str, Any]
    ) -> torch.Tensor:
        """One generation over all images, each begun the same."""
        import torch

        pixels = seen["pixel_values"]
        begun = torch.tensor([prompt] * len(pixels), device=pixels.device)
        ids: torch.Tensor = model.generate(pixel_values=pixels, decoder_input_ids=begun, **given)
        # The base takes one token off the front.
        return ids[:, len(prompt) - 1 :]

    def parse(self, written: Written, size: tuple[int, int], options: ExtractOptions) -> Mapping[str, Any]:
        """The text's fields as the library reads them, and the text itself where it has none."""
        text = self.tokenizer.decode(written.ids, skip_special_tokens=False).strip()
        fields = self.processor.token2json(text)
        if set(fields) == {"text_sequence"}:
            plain = self.tokenizer.decode(written.ids, skip_special_tokens=True).strip()
            return {"data": {"text": plain, "fields": {}}}
        return {"data": {"text": text, "fields": fields}}
