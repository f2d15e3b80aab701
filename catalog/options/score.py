"""Options of `score`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from catalog.options.words import Fraction, Instruction, Options


class ScoreOptions(Options):
    """Options of `score`.

    `top_n` bounds the ranking, not the scores of the items: 0 ranks none, more than there are ranks all.
    `truncate=false` refuses a pair longer than the model reads. `score_mode` and `score_weights` choose among the
    outputs of a model that has several: one of them, or the weighted mean of all.
    """

    top_n: Annotated[int, Field(ge=0)] | None = None
    truncate: bool = True
    instruction: Instruction | None = None
    score_mode: Literal["dense", "sparse", "multivector", "all"] | None = None
    score_weights: Annotated[list[Annotated[Fraction, Field(ge=0)]], Field(min_length=3, max_length=3)] | None = None
