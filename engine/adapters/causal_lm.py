"""Decoder models of transformers that go on with a text: chat models and others.

Many sequences are in one forward pass, each as long as it is, wherever the model's layers allow that; others are
computed one by one. What a model is able to do is found out by trial at its load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.errors import ItemRejected
from engine.generation.adapter import GenerationAdapter, GenerationOptions, plain_words
from engine.generation.chat import Chat, conversation, flattened
from engine.generation.sequences import Prompt, options_of
from engine.readings import text_of
from engine.types import Entry

if TYPE_CHECKING:
    import torch

    from engine.generation.decoding import Decoder


class CausalLmOptions(GenerationOptions):
    """How the weights are held."""


class CausalLmAdapter(GenerationAdapter):
    """One decoder with its tokenizer."""

    options = CausalLmOptions
    _tokenizer: Any = None
    _chat: Chat | None = None

    def read_parts(self) -> torch.nn.Module:
        """The library's model, with its tokenizer and chat template."""
        self._tokenizer = self.read_tokenizer()
        self._chat = Chat(self._tokenizer)
        return self.read_model("AutoModelForCausalLM")

    def forget(self) -> None:
        """Drop the tokenizer, too."""
        super().forget()
        self._tokenizer = self._chat = None

    def tokenizer_of(self) -> Any:
        """The library's tokenizer."""
        return self._tokenizer

    def choose_decoder(self, module: Any) -> Decoder:
        """All in one row, if the model gives the same logits so."""
        from engine.generation.decoding import try_packed, try_pieces

        words = plain_words(self._tokenizer)
        packed = try_packed(module, self.device, self.spec.max_length, words)
        return packed or try_pieces(module, self.device, words)

    def prompt_of(self, entry: Entry) -> Prompt | ItemRejected:
        """The chat template filled in, or the text itself where it is asked for or there is no template."""
        if self._chat is None:
            raise RuntimeError("join before load")
        payload: Mapping[str, Any] = entry.item.payload
        options = options_of(entry)
        templated = getattr(self._tokenizer, "chat_template", None) is not None
        if "messages" not in payload and (options.raw or not templated):
            text = text_of(payload)
            return text if isinstance(text, ItemRejected) else Prompt(self._chat.raw(text))
        if not templated:
            return ItemRejected("This model has no chat template: send a text.", param="messages")
        if options.raw:
            return ItemRejected("'raw' goes with a text, not with messages.", param="options.raw")
        messages = conversation(payload)
        turns = messages if isinstance(messages, ItemRejected) else flattened(messages)
        if isinstance(turns, ItemRejected):
            return turns
        rendered = self._chat.render(turns, options)
        return (
            rendered
            if isinstance(rendered, ItemRejected)
            else Prompt(self._chat.ids(rendered), opening=rendered.opening)
        )
