"""Options of `score`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from catalog.errors import InvalidOption
from catalog.options.words import Fraction, Instruction, Options
from catalog.schema import Spec

_ALL = ("dense", "sparse", "multivector")


class ScoreOptions(Options):
    """Options of `score`.

    `top_n` bounds the ranking, not the scores of the items: 0 ranks none, more than there are ranks all.
    `truncate=false` refuses a pair longer than the model reads. `score_mode` chooses among the outputs of a model that
    has several: one of them, or the mean of all. `score_weights` are what dense, sparse and multivector count in it.
    """

    top_n: Annotated[int, Field(ge=0)] | None = None
    truncate: bool = True
    instruction: Instruction | None = None
    score_mode: Literal["dense", "sparse", "multivector", "all"] | None = None
    score_weights: Annotated[list[Annotated[Fraction, Field(ge=0)]], Field(min_length=3, max_length=3)] | None = None


def check_score(spec: Spec, options: ScoreOptions) -> None:
    """Raise InvalidOption for what this model cannot do."""
    outputs = spec.tasks.encode.outputs if spec.tasks.encode is not None else ()
    modes = (*outputs, "all") if len(outputs) == len(_ALL) else outputs
    if options.score_mode is not None and options.score_mode not in modes:
        known = f"scores by: {', '.join(modes)}" if modes else "has one way of scoring; leave it out"
        message = f"Model {spec.id!r} does not score by {options.score_mode}; it {known}."
        raise InvalidOption(message, param="options.score_mode")
    if options.score_weights is None:
        return
    if "all" not in modes or options.score_mode not in (None, "all"):
        message = "'score_weights' are for 'score_mode' all, of a model with dense, sparse and multivector outputs."
        raise InvalidOption(message, param="options.score_weights")
    if not sum(options.score_weights):
        raise InvalidOption("One of 'score_weights' must be above 0.", param="options.score_weights")
