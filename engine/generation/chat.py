"""From what a caller sent to the tokens of a prompt. A caller's text is text: it can never end its turn.

Where a text holds what is written like a control token, the literal is marked before the template is filled in, and
unmarked when its part of the prompt becomes tokens, without control tokens. Other prompts are the library's own call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from catalog.options.generate import GenerateOptions
from catalog.tokenizer import PlainTokenizer
from engine.errors import ItemRejected
from engine.readings import text_of

_THOUGHT = re.compile(r"<think>\s*\Z")
"""How templates of models that think aloud may end a prompt."""

_MARKS = (*map(chr, range(0xE000, 0xE010)),)
"""Signs of nobody's use; one that no text of the prompt has marks the literals in it."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as text. `mark` stands in each literal that must stay text; empty where there is none."""

    text: str
    mark: str = ""

    @property
    def opening(self) -> str:
        """What the template has said of the answer already: that a thought begins. Empty where it has not."""
        found = _THOUGHT.search(self.text)
        return found[0] if found else ""


class Chat:
    """The prompts of one model, by its own template."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is the library's, with its chat template."""
        self._tokenizer = tokenizer
        template = json.dumps(getattr(tokenizer, "chat_template", None) or "", ensure_ascii=False)
        literals = {
            token.content: index
            for index, token in tokenizer.backend_tokenizer.get_added_tokens_decoder().items()
            if token.content.strip() and len(token.content) > 1 and (token.special or token.content in template)
        }
        self._literals = literals
        ordered = sorted(literals, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def render(
        self, messages: Sequence[Mapping[str, Any]], options: GenerateOptions, template: Any = None
    ) -> Rendered | ItemRejected:
        """The conversation by the template, up to the model's turn. `template` may stand for the tokenizer."""
        own: list[Mapping[str, Any]] = [dict(message) for message in messages]
        more: dict[str, Any] = {}
        if options.tools:
            more["tools"] = options.tools
        mark = self._mark([own, more])
        if mark:
            own, more = self._marked(own, mark), self._marked(more, mark)
        if options.thinking is not None:
            more["enable_thinking"] = options.thinking
        try:
            text = (template or self._tokenizer).apply_chat_template(
                own, tokenize=False, add_generation_prompt=True, **more
            )
        except Exception as error:  # noqa: BLE001 - templates raise what they like of what they do not take
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return ItemRejected(f"The model's chat template refuses this: {said[:300]}", param="messages")
        return Rendered(str(text), mark)

    def ids(self, prompt: Rendered) -> list[int]:
        """The tokens of a rendered prompt: control tokens where the template has put them."""
        if not prompt.mark or self._pattern is None:
            found: list[int] = self._tokenizer(prompt.text, add_special_tokens=False)["input_ids"]
            return found
        ids: list[int] = []
        place = 0
        for match in self._pattern.finditer(prompt.text):
            ids += self._plainly(prompt.text[place : match.start()].replace(prompt.mark, ""))
            ids.append(self._literals[match[0]])
            place = match.end()
        return ids + self._plainly(prompt.text[place:].replace(prompt.mark, ""))

    def raw(self, text: str) -> list[int]:
        """The tokens of a text without a template, as the library's tokenizer gives them."""
        if self._pattern is None or not self._pattern.search(text):
            found: list[int] = self._tokenizer(text)["input_ids"]
            return found
        return self._plain.encode([text])[0].ids

    @cached_property
    def _plain(self) -> PlainTokenizer:
        written = json.loads(self._tokenizer.backend_tokenizer.to_str())
        guarded = set(self._literals.values())
        for token in written.get("added_tokens", ()):
            token["special"] = token["special"] or token["id"] in guarded
        return PlainTokenizer(json.dumps(written))

    def _plainly(self, text: str) -> list[int]:
        if not text:
            return []
        found = self._plain.encode([text])[0]
        return found.ids[found.first : len(found.ids) - found.last]

    def _mark(self, value: Any) -> str:
        texts = list(_texts(value))
        if self._pattern is None or not any(self._pattern.search(text) for text in texts):
            return ""
        return next((mark for mark in _MARKS if not any(mark in text for text in texts)), _MARKS[0])

    def _marked(self, value: Any, mark: str) -> Any:
        if isinstance(value, str):
            pattern = self._pattern
            while pattern is not None and pattern.search(value):
                value = pattern.sub(lambda match: match[0][0] + mark + match[0][1:], value)
            return value
        if isinstance(value, Mapping):
            return {self._marked(key, mark): self._marked(one, mark) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._marked(one, mark) for one in value]
        return value


class GuardedTokenizer:
    """The library's tokenizer for a processor that tokenizes by itself: prompts with a mark become tokens by `Chat`."""

    def __init__(self, tokenizer: Any, chat: Chat) -> None:
        self._tokenizer = tokenizer
        self._chat = chat
        self.mark = ""

    def __call__(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        """As the library's own, but for the marked."""
        if not self.mark:
            return self._tokenizer(text, *args, **kwargs)
        from transformers import BatchEncoding

        texts = [text] if isinstance(text, str) else list(text)
        first: list[int] = self._tokenizer("")["input_ids"][:1] if kwargs.get("add_special_tokens", True) else []
        if first != [self._tokenizer.bos_token_id]:
            first = []
        ids = [first + self._chat.ids(Rendered(one, self.mark)) for one in texts]
        return BatchEncoding({"input_ids": ids, "attention_mask": [[1] * len(one) for one in ids]})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def conversation(payload: Mapping[str, Any]) -> list[Mapping[str, Any]] | ItemRejected:
    """The turns of an item; a text alone is one turn of the user's."""
    messages = payload.get("messages")
    if messages is None:
        text = text_of(payload)
        return text if isinstance(text, ItemRejected) else [{"role": "user", "content": text}]
    if not isinstance(messages, list) or not messages:
        return ItemRejected("The item has no messages.", param="messages")
    for text in _texts(messages):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return ItemRejected("A message has half a surrogate pair.", param="messages")
    return messages


def flattened(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]] | ItemRejected:
    """Turns whose content is plain text, for templates that know nothing else. Raises nothing; images are refused."""
    found: list[Mapping[str, Any]] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            if any(part.get("type") != "text" for part in content):
                return ItemRejected("This model reads no images.", param="messages")
            content = "".join(part["text"] for part in content)
        found.append({**message, "content": "" if content is None else content})
    return found


def _texts(value: Any) -> list[str]:
    """All texts in a value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for pair in value.items() for one in pair for text in _texts(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in _texts(one)]
    return []
