from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from catalog.errors import RoostError
from catalog.loader import Choice
from catalog.schema import EncodeFacts, ExtractFacts, ExtractKind, GenerateFacts, InputKind, ScoreFacts, Spec, Tasks
from tasks.backfills.chunking import Cut, Unit
from tasks.backfills.plan import BackfillRequest, Model, check_chain, cut_of, parse_backfill, recipe_of


def spec(name: str, inputs: tuple[InputKind, ...] = ("text",), max_length: int = 512, **tasks: Any) -> Spec:
    return Spec(
        id=name, family="fake", tasks=Tasks(**tasks), parameters=0, max_length=max_length, inputs=inputs, unit="tokens"
    )


DOCLING = spec("docling", ("document", "image"), extract=ExtractFacts(kinds=(ExtractKind.DOCUMENT,)))
SPECS = [
    DOCLING.model_copy(update={"unit": "pages"}),
    spec("embedder", encode=EncodeFacts(dims=4)),
    spec("short", max_length=32, encode=EncodeFacts(dims=4)),
    spec("ranker", score=ScoreFacts()),
    spec("tagger", extract=ExtractFacts()),
    spec("writer", generate=GenerateFacts()),
]
MODELS = {one.id: Model(Choice(one, "default", one.id, {}, {})) for one in SPECS}
PARSE = {"step": "parse", "model": "docling"}
CHUNK = {"step": "chunk"}
ENCODE = {"step": "encode", "model": "embedder"}
GENERATE = {"step": "generate", "model": "writer"}


def request(*steps: Mapping[str, Any]) -> BackfillRequest:
    return parse_backfill({"source": {"path": "/srv/in"}, "steps": list(steps)})


def check(*steps: Mapping[str, Any]) -> None:
    asked = request(*steps)
    check_chain(asked.steps, [None if one.model is None else MODELS[one.model] for one in asked.steps])


def cut(options: Mapping[str, Any], *after: Mapping[str, Any]) -> Cut:
    asked = request({**CHUNK, "options": options}, *after)
    return cut_of(asked.steps, [None if one.model is None else MODELS[one.model] for one in asked.steps], 0)


@pytest.mark.parametrize(
    "steps",
    [
        [ENCODE],
        [PARSE],
        [CHUNK],
        [PARSE, ENCODE],
        [PARSE, CHUNK, ENCODE],
        [CHUNK, GENERATE, ENCODE],
        [PARSE, GENERATE],
        [PARSE, CHUNK, {"step": "extract", "model": "tagger"}],
        [{"step": "extract", "model": "docling"}, CHUNK],
        [PARSE, CHUNK, {"step": "score", "model": "ranker", "query": "birds"}],
    ],
)
def test_steps_that_read_what_comes_before_them_fit(steps: list[Mapping[str, Any]]) -> None:
    check(*steps)


@pytest.mark.parametrize(
    ("steps", "param", "said"),
    [
        ([ENCODE, CHUNK], "steps[1]", "no text to read"),
        ([PARSE, {"step": "extract", "model": "tagger"}, ENCODE], "steps[2]", "no text to read"),
        ([CHUNK, ENCODE, GENERATE], "steps[2]", "(encode) gives none"),
        ([CHUNK, PARSE], "steps[1]", "must come first"),
        ([GENERATE, {"step": "extract", "model": "docling"}], "steps[1].model", "reads no texts"),
        ([{"step": "parse", "model": "tagger"}], "steps[0].model", "makes no text"),
        ([{"step": "encode", "model": "writer"}], "steps[0].step", "does not encode; it does: generate"),
        ([CHUNK, CHUNK], "steps[1]", "second 'chunk'"),
        ([CHUNK | {"options": {"sise": 4}}], "steps[0].options.sise", "did you mean 'size'"),
        ([CHUNK | {"options": {"unit": "tokens"}}], "steps[0].options.unit", "no model comes after"),
        ([CHUNK | {"options": {"size": 10, "overlap": 10}}], "steps[0].options.overlap", "less than the size"),
        ([CHUNK | {"options": {"size": 600}}, ENCODE], "steps[0].options.size", "at most 508"),
        ([CHUNK | {"options": {"unit": "words"}}], "steps[0].options.unit", "must be"),
    ],
)
def test_a_step_that_does_not_fit_is_named(steps: list[Mapping[str, Any]], param: str, said: str) -> None:
    with pytest.raises(RoostError) as caught:
        check(*steps)

    assert caught.value.param == param
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"steps": []}, "steps"),
        ({"steps": [PARSE] * 9}, "steps"),
        ({"steps": [{"step": "parse"}]}, "steps[0].model"),
        ({"steps": [CHUNK | {"model": "x"}]}, "steps[0].model"),
        ({"steps": [ENCODE | {"query": "x"}]}, "steps[0].query"),
        ({"steps": [{"step": "score", "model": "ranker"}]}, "steps[0].query"),
        ({"steps": [ENCODE | {"prompt": "x {text}"}]}, "steps[0].prompt"),
        ({"steps": [GENERATE | {"prompt": "no place for it"}]}, "steps[0].prompt"),
        ({"steps": [{"stepp": "parse"}]}, "steps[0].stepp"),
        ({"source": {"path": "/a", "manifest": "file-1"}}, "source"),
        ({"source": {"files": [{"id": "x"}]}}, "source.files[0].path"),
        ({"source": {"files": [{"file": "/srv/a.txt"}]}}, "source.files[0].file"),
        ({"source": {"files": []}}, "source.files"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"skip_unchanged": 1}, "skip_unchanged"),
    ],
)
def test_a_request_of_the_wrong_shape_is_refused_by_the_field(changes: Mapping[str, Any], param: str) -> None:
    with pytest.raises(RoostError) as caught:
        parse_backfill({"source": {"path": "/srv/in"}, "steps": [ENCODE], **changes})

    assert caught.value.param == param


def test_a_prompt_is_said_around_the_text() -> None:
    (step,) = request(GENERATE | {"prompt": "Sum up: {text}!"}).steps

    assert step.said("{text}") == "Sum up: {text}!"
    assert request(GENERATE).steps[0].said("a") == "a"


def test_chunks_fit_the_model_that_reads_them_unless_told_otherwise() -> None:
    assert cut({}, ENCODE) == Cut(256, 32, Unit.TOKENS)
    assert cut({}, {"step": "encode", "model": "short"}) == Cut(28, 3, Unit.TOKENS)
    assert cut({"size": 100}, ENCODE) == Cut(100, 12, Unit.TOKENS)
    assert cut({"size": 100, "overlap": 0}, ENCODE) == Cut(100, 0, Unit.TOKENS)
    assert cut({"size": 5000, "unit": "chars"}, ENCODE) == Cut(5000, 625, Unit.CHARS)
    assert cut({}) == Cut(1000, 125, Unit.CHARS)


def test_the_recipe_is_that_of_the_steps_and_their_models_alone() -> None:
    def recipe(*steps: Mapping[str, Any], models: Mapping[str, Model] = MODELS) -> bytes:
        asked = request(*steps)
        return recipe_of(asked.steps, [None if one.model is None else models[one.model] for one in asked.steps])

    newer = SPECS[1].model_copy(update={"source": SPECS[1].source.model_copy(update={"revision": "2"})})
    changed = {**MODELS, "embedder": Model(Choice(newer, "default", "embedder", {}, {}))}

    assert recipe(CHUNK, ENCODE) == recipe(CHUNK, ENCODE)
    assert len({recipe(CHUNK, ENCODE), recipe(ENCODE), recipe(ENCODE | {"options": {"normalize": False}})}) == 3
    assert recipe(ENCODE) != recipe(ENCODE, models=changed)
