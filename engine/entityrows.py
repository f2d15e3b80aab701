"""Items in which entities are looked for by labels: what is asked of each, its windows as rows, and what rows found.

Pure: a family counts pieces and runs rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from catalog.options import ExtractOptions
from engine.adjacent import join_adjacent
from engine.errors import EngineError, NotFinite
from engine.findings import entity, relation
from engine.types import Outcome, Output
from engine.windows import Span, Window, merge
from engine.wordwindows import Cut

THRESHOLD = 0.5

Related = tuple[Span, Span, str, float]
"""Head, tail, the relation's name, its score."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of one item, and the windows that its text is read in; none of a text without words.

    `pieces` counts the tokens of each word, `around` those that the labels take beside each window.
    """

    text: str
    pieces: tuple[int, ...]
    options: ExtractOptions
    labels: tuple[str, ...]
    relations: tuple[str, ...]
    cut: Cut
    around: int = 0

    @property
    def threshold(self) -> float:
        """What an entity's score must be above."""
        return THRESHOLD if self.options.threshold is None else self.options.threshold

    @property
    def relation_threshold(self) -> float:
        """What a relation's score must be above: by default as for entities."""
        own = self.options.relation_threshold
        return self.threshold if own is None else own


@dataclass(frozen=True, slots=True)
class Row:
    """One window of one plan, `plan` being its place among the plans; `pieces` counts the tokens of its text."""

    place: int
    plan: Plan
    window: Window
    pieces: int

    @property
    def text(self) -> str:
        """The window's own text."""
        return self.plan.text[self.window.start : self.window.end]

    def span(self, start: int, end: int, label: str, score: float) -> Span:
        """A span by its offsets in the window's text."""
        return Span(self.window.start + start, self.window.start + end, label, score)


@dataclass(frozen=True, slots=True)
class Found:
    """What a row has, by offsets in the whole text; `tokens` counts what was read for it, labels included."""

    spans: tuple[Span, ...]
    relations: tuple[Related, ...]
    tokens: int


def rows_of(plans: Sequence[Plan | EngineError]) -> list[Row]:
    """The windows of all plans, in order."""
    return [
        Row(place, plan, window, sum(plan.pieces[window.first : window.stop]))
        for place, plan in enumerate(plans)
        if isinstance(plan, Plan)
        for window in plan.cut.windows
    ]


def answers(
    plans: Sequence[Plan | EngineError], rows: Sequence[Row], found: Sequence[Found | NotFinite], *, relations: bool
) -> list[Outcome]:
    """The outcome of each plan by what its rows have; `found` has one for each row."""
    each: list[list[Found | NotFinite]] = [[] for _ in plans]
    for row, one in zip(rows, found, strict=True):
        each[row.place].append(one)
    return [
        plan if isinstance(plan, EngineError) else answer(plan, own, relations=relations)
        for plan, own in zip(plans, each, strict=True)
    ]


def answer(plan: Plan, found: Sequence[Found | NotFinite], *, relations: bool) -> Outcome:
    """The outcome of one item by what its windows have, in their order.

    With `relations` there is a list of them as well: those whose two entities stayed, each once.
    """
    there: list[Found] = []
    for one in found:
        if isinstance(one, NotFinite):
            return one
        there.append(one)
    options = plan.options
    spans = merge(plan.cut.windows, [one.spans for one in there], flat=options.flat_ner) if there else []
    if options.merge_adjacent_entities:
        spans = join_adjacent(plan.text, spans)
    fields: dict[str, Any] = {"entities": [_entity(plan.text, span) for span in spans]}
    if relations:
        fields["relations"] = _relations(plan.text, spans, [one.relations for one in there])
    return Output(fields, tokens=sum(one.tokens for one in there), truncated=plan.cut.truncated)


def _entity(text: str, span: Span) -> dict[str, Any]:
    return entity(text, span.label, span.score, span.start, span.end)


def _relations(text: str, spans: Sequence[Span], found: Sequence[Sequence[Related]]) -> list[dict[str, Any]]:
    """Relations between what stayed; of one that two windows found, the higher score."""
    inside = {(span.start, span.end, span.label): span for span in spans}
    best: dict[tuple[Span, Span, str], float] = {}
    for part in found:
        for head, tail, name, score in part:
            one, other = _home(inside, spans, head), _home(inside, spans, tail)
            if one is not None and other is not None and one != other:
                key = (one, other, name)
                best[key] = max(score, best.get(key, score))
    return [
        relation(_entity(text, head), _entity(text, tail), name, score) for (head, tail, name), score in best.items()
    ]


def _home(inside: dict[tuple[int, int, str], Span], spans: Sequence[Span], span: Span) -> Span | None:
    """The span that a window's span has become: itself, or one that it was joined into; None if it did not stay."""
    exact = inside.get((span.start, span.end, span.label))
    if exact is not None:
        return exact
    return next(
        (one for one in spans if one.label == span.label and one.start <= span.start and span.end <= one.end), None
    )
