"""Two texts that a model reads as one input, such as a query and a passage.

Each text is tokenised once, however many pairs it is in, and cut as the tokenizers library cuts: either one loses
tokens until the pair fits, the longer first, or the first alone does. Pure but for the tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.tokenizer import PairTemplate, PlainTokenizer, Tokens


@dataclass(frozen=True, slots=True)
class Pair:
    """What goes into the model, and how many tokens the pair had before it was cut."""

    tokens: Tokens
    counted: int

    @property
    def cut(self) -> bool:
        """Whether the model does not read all of it."""
        return self.counted > len(self.tokens.ids)


def own_tokens(tokenizer: PlainTokenizer, texts: Sequence[str]) -> dict[str, list[int]]:
    """The tokens of each text, without any template; each different text is read once."""
    different = list(dict.fromkeys(texts))
    read = tokenizer.encode(different) if different else []
    return {text: tokens.body for text, tokens in zip(different, read, strict=True)}


def longest_first(
    template: PairTemplate, one: list[int], other: list[int], most: int, *, keep_end: bool = False
) -> Pair:
    """A pair of at most `most` tokens; the longer text loses its own first, and then both share what there is."""
    room = max(0, most - template.size)
    first, second = _shares(len(one), len(other), room)
    tokens = template.around(_kept(one, first, keep_end), _kept(other, second, keep_end))
    return Pair(tokens, template.size + len(one) + len(other))


def _shares(one: int, other: int, room: int) -> tuple[int, int]:
    if one + other <= room:
        return one, other
    shorter, longer = sorted((one, other))
    longer = shorter if shorter > room else max(shorter, room - shorter)
    if shorter + longer > room:
        shorter = room // 2
        longer = room - shorter
    return (longer, shorter) if one > other else (shorter, longer)


def _kept(ids: list[int], count: int, keep_end: bool) -> list[int]:
    return ids[len(ids) - count :] if keep_end else ids[:count]
