"""The text set of every embedding measurement: the same texts in the same order on every machine.

70 % of 8-32 tokens, 25 % of 64-200, 5 % of 300-512, special tokens included. A model that reads 256 cuts the long ones,
so lengths count what is computed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

SEED = 20_261
MIX: tuple[tuple[float, int, int], ...] = ((0.70, 8, 32), (0.25, 64, 200), (0.05, 300, 512))
SPECIAL = 2

_VOCABULARY = """
the river bank report describes how small models answer questions about weather trade history music and law
while engineers measure latency memory cost on shared machines each night before a new release because users
want short answers long documents clear errors from every service they call during work or study at home in
spring summer autumn winter city village mountain harbour school hospital museum factory garden kitchen office
train
"""
WORDS = tuple(_VOCABULARY.split())


@dataclass(frozen=True, slots=True)
class Text:
    """One text with the tokens a model computes for it, special tokens included and cut at what it reads."""

    text: str
    tokens: int


def lengths(count: int, seed: int = SEED) -> list[int]:
    """How many tokens each text should have, in order. The shares hold exactly in every block of twenty."""
    chance = random.Random(seed)
    wanted: list[int] = []
    while len(wanted) < count:
        block = [(low, high) for share, low, high in MIX for _ in range(round(share * 20))]
        chance.shuffle(block)
        wanted.extend(chance.randint(low, high) for low, high in block)
    return wanted[:count]


def texts(count: int, tokenizer: Tokenizer, max_length: int, seed: int = SEED) -> list[Text]:
    """The first `count` texts of the set, measured with the model's own tokenizer."""
    chance = random.Random(seed + 1)
    sizes = {word: len(tokenizer.encode(word, add_special_tokens=False).ids) for word in WORDS}
    made = [_write(wanted - SPECIAL, sizes, chance) for wanted in lengths(count, seed)]
    counts = [len(encoding.ids) for encoding in tokenizer.encode_batch(made)]
    return [Text(text, min(tokens, max_length)) for text, tokens in zip(made, counts, strict=True)]


def _write(tokens: int, sizes: Mapping[str, int], chance: random.Random) -> str:
    """A text of exactly `tokens` tokens; some words must be one token each."""
    words: list[str] = []
    left = tokens
    while left > 0:
        word = chance.choice(WORDS)
        if sizes[word] <= left:
            words.append(word)
            left -= sizes[word]
    return " ".join(words)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder with cutting and padding off, so that it counts whole texts."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def total(chosen: Sequence[Text]) -> int:
    """Tokens of several texts."""
    return sum(text.tokens for text in chosen)
