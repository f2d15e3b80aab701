"""A tokenizer's tokens as bytes: what a grammar is matched against, and what a caller gets beside a log-probability.

Imports no torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """The tokens of a model: `size` of them, as many as it has logits. `ends` are those that end a text."""

    def __init__(self, tokenizer: Tokenizer, size: int, ends: Iterable[int]) -> None:
        self.tokenizer = tokenizer
        self.size = size
        self.ends = tuple(sorted(ends))
        self._special = {index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._added = tokenizer.get_added_tokens_decoder()
        self._bytewise = '"ByteLevel"' in _parts(tokenizer)

    def bytes_of(self, token: int) -> bytes:
        """A token's bytes: perhaps part of a character."""
        added = self._added.get(token)
        if added is not None:
            return added.content.encode()
        written = self.tokenizer.id_to_token(token)
        if written is None:
            return b""
        if self._bytewise:
            signs = [_SIGNS.get(sign) for sign in written]
            return written.encode() if None in signs else bytes(sign for sign in signs if sign is not None)
        found = _BYTE.fullmatch(written)
        return bytes([int(found[1], 16)]) if found else written.replace("\u2581", " ").encode()

    def decode(self, tokens: list[int]) -> str:
        """The text of some tokens, control tokens left out."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    @cached_property
    def matched(self) -> Any:
        """The tokenizer as llguidance wants it. Takes about a second the first time."""
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(_Tokens(self)), n_vocab=self.size, eos_token=list(self.ends))


class _Tokens:
    """What llguidance asks of a tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.eos_token_id = vocabulary.ends[0]
        self.bos_token_id = None
        self.tokens = [vocabulary.bytes_of(token) for token in range(vocabulary.size)]
        self.special_token_ids = sorted(i for i in vocabulary._special if i < vocabulary.size)
        self._tokenizer = vocabulary.tokenizer

    def __call__(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found


def _parts(tokenizer: Tokenizer) -> str:
    written = json.loads(tokenizer.to_str())
    return json.dumps([written.get("pre_tokenizer"), written.get("decoder")])


def _signs() -> dict[str, int]:
    """The printable sign that byte-level tokenizers write for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(rest)}


_SIGNS = _signs()
