"""Options of `extract`. Which of them a model takes follows from the kinds of things that it finds."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from catalog.errors import InvalidOption
from catalog.options.families import unread
from catalog.options.words import Fraction, Instruction, Options, Phrase, Share, Tree
from catalog.schema import ExtractKind, Spec
from catalog.terms import Verb

MOST_LABELS = 1000
_PAGES = re.compile(r"\s*\d{1,6}\s*(-\s*\d{1,6}\s*)?(,\s*\d{1,6}\s*(-\s*\d{1,6}\s*)?)*")


def _pages(value: str) -> str:
    if not _PAGES.fullmatch(value):
        raise ValueError("must be pages and ranges from 1, such as '1-3,7'")
    return value


Labels = Annotated[list[Phrase], Field(max_length=MOST_LABELS)]


class ExtractOptions(Options):
    """Options of `extract`; None leaves it to the model.

    `labels` are what to look for. `threshold` drops what scores lower. `output_schema` asks for fields in one object.
    `classification_task` makes the labels classes of the whole text, under this name, where a model could do both.
    Of entities: `flat_ner` lets no two overlap, `multi_label` lets one span have several labels. Of classifications:
    `multi_label` scores each label by itself, `hypothesis_template` has `{}` where the label goes. Of objects:
    `box_threshold` and `text_threshold` as Grounding DINO has them (`score_threshold` is another name of `threshold`).
    Of documents: `ocr` reads what has no text (null: only where a page has none), `pages` is such as `1-3,7`. Of
    speech: `language`, `task`, `timestamps`.
    """

    labels: Labels | None = None
    threshold: Share | None = None
    instruction: Instruction | None = None
    output_schema: Tree | None = None
    classification_task: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    flat_ner: bool = True
    multi_label: bool = False
    merge_adjacent_entities: bool = False
    relation_labels: Labels | None = None
    relation_threshold: Share | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    hypothesis_template: Annotated[str, Field(max_length=1000)] | None = None
    examples: Annotated[list[Tree], Field(max_length=100)] | None = None
    score_threshold: Share | None = None
    box_threshold: Share | None = None
    text_threshold: Share | None = None
    ocr: bool | None = None
    tables: bool = True
    pages: Annotated[str, Field(max_length=1000), AfterValidator(_pages)] | None = None
    password: Annotated[str, Field(max_length=200)] | None = None
    task: Annotated[str, Field(max_length=200)] | None = None
    max_new_tokens: Annotated[int, Field(ge=1, le=100_000)] | None = None
    num_beams: Annotated[int, Field(ge=1, le=16)] | None = None
    language: Annotated[str, Field(max_length=40)] | None = None
    temperature: Annotated[Fraction, Field(ge=0, le=2)] | None = None
    timestamps: Literal["none", "segment", "word"] = "none"


_COMMON = frozenset({"instruction"})
_FIELDS: dict[ExtractKind, frozenset[str]] = {
    ExtractKind.ENTITIES: frozenset({"labels", "threshold", "flat_ner", "multi_label", "merge_adjacent_entities"}),
    ExtractKind.RELATIONS: frozenset(
        {"labels", "threshold", "relation_labels", "relation_threshold", "top_k", "flat_ner"}
    ),
    ExtractKind.CLASSIFICATIONS: frozenset(
        {"labels", "threshold", "multi_label", "hypothesis_template", "top_k", "examples"}
    ),
    ExtractKind.STRUCTURE: frozenset({"output_schema", "classification_task", "threshold"}),
    ExtractKind.OBJECTS: frozenset(
        {"labels", "threshold", "score_threshold", "box_threshold", "text_threshold", "top_k", "task"}
    ),
    ExtractKind.DOCUMENT: frozenset({"ocr", "tables", "pages", "password", "language"}),
    ExtractKind.TEXT: frozenset({"task", "max_new_tokens", "num_beams", "threshold", "language"}),
    ExtractKind.TRANSCRIPT: frozenset({"language", "task", "temperature", "timestamps", "max_new_tokens"}),
}


def extract_fields(spec: Spec) -> list[str]:
    """The options that this model takes, by the kinds of things that it finds and by its family; in their order."""
    facts = spec.tasks.extract
    assert facts is not None, "the verb was checked before its options"
    names = _COMMON.union(*(_FIELDS[kind] for kind in facts.kinds)) - unread(spec.family, Verb.EXTRACT)
    return [name for name in ExtractOptions.model_fields if name in names]


def check_extract(spec: Spec, options: ExtractOptions) -> None:
    """Raise InvalidOption for what this model cannot do."""
    facts = spec.tasks.extract
    assert facts is not None, "the verb was checked before its options"
    known = set(facts.labels)
    for index, label in enumerate(options.labels or ()):
        if known and label not in known:
            raise InvalidOption(
                f"Model {spec.id!r} has labels of its own and {label[:100]!r} is none of them: "
                f"{', '.join(facts.labels)[:500]}.",
                param=f"options.labels[{index}]",
            )
    if options.task is not None and facts.tasks and options.task not in facts.tasks:
        raise InvalidOption(
            f"Model {spec.id!r} has no task {options.task[:100]!r}; it has: {', '.join(facts.tasks)}.",
            param="options.task",
        )
