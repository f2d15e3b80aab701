"""Models of transformers that read images and texts and go on with a text.

A prompt with images is read in one pass, since its places in the image are its own; what is made after it shares
passes with others where the model's layers allow that. What a model is able to do is found out by trial at its load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catalog.options.generate import GenerateOptions
from engine.errors import ItemRejected
from engine.generation.adapter import GenerationAdapter, GenerationOptions, plain_words
from engine.generation.chat import Chat, GuardedTokenizer, Rendered, conversation
from engine.generation.sequences import Prompt, options_of
from engine.images import decode
from engine.readings import text_of
from engine.types import Entry

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from engine.generation.decoding import Decoder

_TRIAL_SIZE = (96, 64)


class VisionLanguageOptions(GenerationOptions):
    """How the weights are held."""


class VisionLanguageAdapter(GenerationAdapter):
    """One model with its processor."""

    options = VisionLanguageOptions
    _tokenizer: Any = None
    _guarded: Any = None
    _processor: Any = None
    _chat: Chat | None = None

    def read_parts(self) -> torch.nn.Module:
        """The library's model, with its processor and chat template."""
        from engine.generation.processors import read_processor

        self._tokenizer = self.read_tokenizer()
        self._chat = Chat(self._tokenizer)
        self._guarded = GuardedTokenizer(self._tokenizer, self._chat)
        self._processor = read_processor(self.files, self._guarded)
        return self.read_model("AutoModelForImageTextToText")

    def forget(self) -> None:
        """Drop the processor and the tokenizer, too."""
        super().forget()
        self._tokenizer = self._guarded = self._processor = self._chat = None

    def tokenizer_of(self) -> Any:
        """The library's tokenizer."""
        return self._tokenizer

    def choose_decoder(self, module: Any) -> Decoder:
        """All in one row, if the model gives the same logits so, behind a text and behind an image."""
        from engine.generation.decoding import try_packed, try_pieces

        text = getattr(getattr(module, "model", None), "language_model", None)
        packed, words = None, plain_words(self._tokenizer)
        if text is not None:
            packed = try_packed(module, self.device, self.spec.max_length, words, text, self._trial())
        return packed or try_pieces(module, self.device, words)

    def prompt_of(self, entry: Entry) -> Prompt | ItemRejected:
        """The chat template filled in, with the images where the messages have them."""
        payload, options = entry.item.payload, options_of(entry)
        if options.raw:
            if "messages" in payload or payload.get("images"):
                return ItemRejected("'raw' goes with a text alone.", param="options.raw")
            text = text_of(payload)
            return text if isinstance(text, ItemRejected) else Prompt(self._ready().raw(text))
        try:
            turns, images = _turns(payload)
        except ItemRejected as error:
            return error
        return self._filled(turns, images, options)

    def _filled(
        self, turns: Sequence[Mapping[str, Any]], images: Sequence[Image.Image], options: GenerateOptions
    ) -> Prompt | ItemRejected:
        rendered = self._ready().render(turns, options, self._processor)
        if isinstance(rendered, ItemRejected):
            return rendered
        if not images:
            return Prompt(self._plain_ids(rendered), opening=rendered.opening)
        self._guarded.mark = rendered.mark
        try:
            found = self._processor(
                text=[rendered.text],
                images=[list(images)],
                return_tensors="pt",
                add_special_tokens=not self._begins(rendered),
            )
        except ValueError as error:
            said = (str(error).strip().splitlines() or ["no reason given"])[0]
            return ItemRejected(f"The images cannot be read by this model: {said[:300]}", param="messages")
        finally:
            self._guarded.mark = ""
        beside = {name: value for name, value in found.items() if name not in ("input_ids", "attention_mask")}
        return Prompt(found["input_ids"][0].tolist(), beside, rendered.opening)

    def _plain_ids(self, rendered: Rendered) -> list[int]:
        self._guarded.mark = rendered.mark
        try:
            found = self._guarded(rendered.text, add_special_tokens=not self._begins(rendered))["input_ids"]
        finally:
            self._guarded.mark = ""
        ids: list[int] = found[0] if found and isinstance(found[0], list) else found
        return ids

    def _begins(self, rendered: Rendered) -> bool:
        """Whether the template has put the token that begins a text."""
        begin = self._tokenizer.bos_token
        return bool(begin) and rendered.text.startswith(begin)

    def _ready(self) -> Chat:
        if self._chat is None:
            raise RuntimeError("join before load")
        return self._chat

    def _trial(self) -> Prompt | None:
        """A prompt with an image, for the trial; None where the template takes none."""
        from PIL import Image

        image = Image.linear_gradient("L").resize(_TRIAL_SIZE).convert("RGB")
        content = [{"type": "image"}, {"type": "text", "text": "What is this?"}]
        found = self._filled([{"role": "user", "content": content}], [image], GenerateOptions())
        return None if isinstance(found, ItemRejected) else found


def _turns(payload: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[Image.Image]]:
    """The turns, each with its parts, and the images in their order. Raises ItemRejected."""
    images: list[Image.Image] = []
    if "messages" not in payload:
        parts: list[Mapping[str, Any]] = []
        for place, image in enumerate(payload.get("images") or ()):
            images.append(_decoded(image, f"images[{place}].data"))
            parts.append({"type": "image"})
        if "text" in payload or not parts:
            text = text_of(payload)
            if isinstance(text, ItemRejected):
                raise text
            parts.append({"type": "text", "text": text})
        return [{"role": "user", "content": parts}], images
    messages = conversation(payload)
    if isinstance(messages, ItemRejected):
        raise messages
    turns: list[Mapping[str, Any]] = []
    # A part stands for the next of the item's images.
    given = iter(payload.get("images") or ())
    for number, message in enumerate(messages):
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else []
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if part["type"] == "image":
                images.append(_decoded(next(given, None), f"messages[{number}].content[{place}].image.data"))
                parts.append({"type": "image"})
            else:
                parts.append({"type": "text", "text": part["text"]})
        turns.append({**message, "content": parts})
    return turns, images


def _decoded(image: Any, param: str) -> Image.Image:
    data = image.get("data") if isinstance(image, Mapping) else None
    if not isinstance(data, bytes):
        raise ItemRejected("The image has no data.", param=param)
    return decode(data, param)
