"""What GLiNER2 finds, in the shapes of `findings`. Pure.

The library's result with scores and offsets: `{"entities": {label: [{"text", "confidence", "start", "end"}]},
task: {"label", "confidence"}, structure: [{field: value}], "relation_extraction": {relation: [{"head", "tail"}]}}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.options import ExtractOptions
from engine.adjacent import join_adjacent
from engine.extraction_schema import Asked, shape
from engine.findings import classification, entity, relation
from engine.windows import Span


def fields_of(
    text: str, options: ExtractOptions, asked: Asked | None, schema: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, Any]:
    """An output's fields: each kind that was asked for, also where nothing of it was found.

    `schema` is the library's, of all that was asked. `data` is there where the caller gave a schema: the object of a
    JSON Schema, else what the library calls each structure and each task of classification.
    """
    fields: dict[str, Any] = {}
    spans = _spans(text, found.get("entities") or {})
    if options.merge_adjacent_entities:
        spans = join_adjacent(text, spans)
    if schema.get("entities"):
        fields["entities"] = [entity(text, one.label, one.score, one.start, one.end) for one in spans]
    if schema.get("relations"):
        fields["relations"] = _relations(text, spans, found.get("relation_extraction") or {})
    tasks = [task["task"] for task in schema.get("classifications", ())]
    if tasks:
        fields["classifications"] = [
            classification(one["label"], one["confidence"]) for task in tasks for one in _listed(found.get(task))
        ]
    if asked is not None:
        names = [name for structure in schema.get("json_structures", ()) for name in structure]
        plain = {name: [_instance(one) for one in _listed(found.get(name))] for name in names}
        if asked.parts is not None:
            fields["data"] = shape(asked, plain)
        else:
            own = [task for task in tasks if task != options.classification_task]
            fields["data"] = {**plain, **{task: _labels(found.get(task)) for task in own}}
    return fields


def _spans(text: str, entities: Mapping[str, Any]) -> list[Span]:
    spans = [span for label, found in entities.items() for one in _listed(found) if (span := _span(text, label, one))]
    return sorted(spans, key=lambda one: (one.start, one.end, one.label))


def _span(text: str, label: str, one: Mapping[str, Any]) -> Span | None:
    """None for what lies beyond the text: the library puts a full stop after one that has none."""
    start, end = int(one["start"]), min(int(one["end"]), len(text))
    return Span(start, end, label, float(one["confidence"])) if start < end else None


def _relations(text: str, spans: Sequence[Span], found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Ends that are entities as well have their label, others their part in the relation; the score is the lower."""
    labels = {(span.start, span.end): span.label for span in spans}
    relations = []
    for name, pairs in found.items():
        for pair in pairs:
            ends = [_span(text, side, pair[side]) for side in ("head", "tail")]
            if ends[0] is None or ends[1] is None:
                continue
            head, tail = (
                entity(text, labels.get((end.start, end.end), end.label), end.score, end.start, end.end)
                for end in ends
                if end is not None
            )
            relations.append(relation(head, tail, name, min(head["score"], tail["score"])))
    return relations


def _instance(one: Any) -> Any:
    """A structure's instance with its values alone, each of them once whatever its case."""
    if not isinstance(one, Mapping):
        return one
    return {name: _plain(value) for name, value in one.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        kept: dict[str, str] = {}
        for one in value:
            text = _plain(one)
            if text:
                kept.setdefault(text.lower(), text)
        return list(kept.values())
    if isinstance(value, Mapping):
        return value.get("text")
    return value


def _labels(found: Any) -> Any:
    if isinstance(found, list):
        return [one["label"] for one in found]
    return found["label"] if isinstance(found, Mapping) else None


def _listed(value: Any) -> list[Any]:
    if value is None or value == {}:
        return []
    return value if isinstance(value, list) else [value]
