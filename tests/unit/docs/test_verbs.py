"""docs/verbs.md names the same options, fields and limits as the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from api.schemas import Classification, Detected, Entity, Multivector, Relation, ResultObject, Sparse, Vector
from catalog.jsonschema import KEPT, NOTES
from catalog.options import (
    EncodeOptions,
    ExtractOptions,
    GenerateOptions,
    Grammar,
    OutputDtype,
    ScoreOptions,
    option_names,
)
from catalog.options.words import MAX_DEPTH
from catalog.schema import ExtractFacts, ExtractKind, Spec, Tasks
from catalog.terms import Verb
from tasks.items import MAX_ENTITIES, MAX_IMAGES, MAX_MESSAGES, ItemRequest
from tasks.vectors import MAX_VECTORS


@pytest.fixture(scope="module")
def page() -> str:
    return (Path(__file__).parents[3] / "docs" / "verbs.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """The cells of a table, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!`)\|(?!x)", line)[1:-1]] for line in lines[2:]]


def part(page: str, title: str) -> str:
    return re.split(r"^#{2,3} ", page.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize(
    ("verb", "options"),
    [("encode", EncodeOptions), ("score", ScoreOptions), ("extract", ExtractOptions), ("generate", GenerateOptions)],
)
def test_every_option_is_listed_and_no_other(page: str, verb: str, options: type[BaseModel]) -> None:
    listed = [name for row in rows(part(page, f"Options of `{verb}`")) for name in re.findall(r"`(\w+)`", row[0])]
    assert listed == list(options.model_fields)


@pytest.mark.parametrize("kind", list(ExtractKind))
def test_the_options_of_each_kind_of_extraction_are_those_it_takes(page: str, kind: ExtractKind) -> None:
    table = rows(part(page, "Options of `extract`"))
    every = {row[0].strip("`"): row[3] for row in table}
    told = set()
    for name, kinds in every.items():
        named = set(re.findall(r"\w+", kinds))
        if kinds == "all" or kind.value in named:
            told.add(name)
    tasks = Tasks(extract=ExtractFacts(kinds=(kind,)))
    spec = Spec(id="m", family="f", tasks=tasks, parameters=0, max_length=1)
    assert told == set(option_names(spec, Verb.EXTRACT))


def test_every_thing_that_an_item_may_hold_is_listed_with_its_limits(page: str) -> None:
    table = {row[0].strip("`"): row[2] for row in rows(part(page, "Items"))}
    assert set(table) == set(ItemRequest.model_fields) - {"id"}
    for name, limit in {
        "messages": MAX_MESSAGES,
        "images": MAX_IMAGES,
        "multivector": MAX_VECTORS,
        "entities": MAX_ENTITIES,
    }.items():
        assert f"{limit:,}" in table[name]


def test_every_form_of_a_vector_is_explained(page: str) -> None:
    told = {
        name
        for row in rows(part(page, "Vectors").partition("`dims` counts")[0])
        for name in re.findall(r"`(\w+)`", row[0])
    }
    assert told == {dtype.value for dtype in OutputDtype}


@pytest.mark.parametrize(
    ("title", "field", "shape"),
    [
        ("Vectors", "dense", Vector),
        ("Vectors", "sparse", Sparse),
        ("Vectors", "multivector", Multivector),
        ("What is found", "entities", Entity),
        ("What is found", "relations", Relation),
        ("What is found", "classifications", Classification),
        ("What is found", "objects", Detected),
    ],
)
def test_the_shape_of_what_comes_back_is_told(page: str, title: str, field: str, shape: type[BaseModel]) -> None:
    line = next(line for line in part(page, title).splitlines() if line.startswith(f"| `{field}` | `"))
    assert set(re.findall(r'"(\w+)"', line)) == set(shape.model_fields)


def test_the_scores_of_the_page_are_a_result(page: str) -> None:
    block = re.search(r"^```json\n(.*?)^```", part(page, "Scores"), re.MULTILINE | re.DOTALL)
    assert block is not None
    more = '{"id": "x", "object": "result", "status": "succeeded", "model": "m", "usage": null,'
    ResultObject.model_validate_json(more + block[1].strip()[1:])


def test_the_forms_and_keywords_of_grammars_are_those_of_the_code(page: str) -> None:
    section = part(page, "Grammars")
    assert [row[0].strip("`") for row in rows(section)] == list(Grammar.model_fields)
    kept = section.partition("Kept are\n")[2].partition("\nand `title`")[0]
    passed = section.partition("\nand `title`")[2].partition("are let pass")[0]
    assert re.findall(r"`([$\w]+)`", kept) == list(KEPT)
    assert ["title", *re.findall(r"`([$\w]+)`", passed)] == [*NOTES, "$id"]
    assert f"{MAX_DEPTH} levels" in section
