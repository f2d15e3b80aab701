"""Entities that touch: models that read word by word find a name's parts one by one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from engine.windows import Span


def join_adjacent(text: str, spans: Sequence[Span]) -> list[Span]:
    """Neighbours of one label with nothing but blanks between them become one, with the lowest of their scores."""
    joined: list[Span] = []
    last: dict[str, int] = {}
    for span in sorted(spans, key=lambda one: (one.start, one.end)):
        place = last.get(span.label)
        before = None if place is None else joined[place]
        if before is not None and place is not None and before.end <= span.start:
            between = text[before.end : span.start]
            if not between or between.isspace():
                joined[place] = Span(before.start, span.end, span.label, min(before.score, span.score))
                continue
        last[span.label] = len(joined)
        joined.append(span)
    return joined
