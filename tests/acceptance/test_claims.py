"""Two claims of examples/claims through one real stack, with the models that need no hub."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from catalog.loader import Catalog
from examples.claims.calls import Answer, Roost, StageFailed
from examples.claims.cases import CLAIMS
from examples.claims.models import ARTICLE, SMALL, Model, small_specs
from examples.claims.papers import CLAUSES
from examples.claims.photo import SIZE, photo
from examples.claims.pipeline import DAMAGE, FIELDS, Reviewed, passages, review_claim
from examples.claims.report import print_models, print_residency, print_reviews, print_stages, print_times

pytestmark = pytest.mark.slow

StartStack = Callable[..., Any]
FLOOD, PIPE = CLAIMS[0], CLAIMS[2]
STAGES = ["parse", "fields", "reading", "rerank", "damage", "review"]
# Loads on a busy machine keep a worker from saying that it lives.
PATIENT = {"lost_after_s": 15.0, "held_lease_s": 60.0, "job_lease_s": 60.0}


@pytest.fixture(scope="module")
def stack(start_stack: StartStack) -> Any:
    return start_stack(models=small_specs(), **PATIENT)


@pytest.fixture(scope="module")
def reviewed(stack: Any) -> tuple[Reviewed, Reviewed]:
    """The flood by calls that wait, and at the same time the pipe as jobs."""

    async def both() -> tuple[Reviewed, Reviewed]:
        waiting, sending = Roost(stack.url, jobs=False), Roost(stack.url, jobs=True)
        try:
            flood, pipe = await asyncio.gather(review_claim(waiting, SMALL, FLOOD), review_claim(sending, SMALL, PIPE))
        finally:
            await waiting.close()
            await sending.close()
        return flood, pipe

    return asyncio.run(both())


def test_the_papers_are_read_and_their_fields_found(reviewed: tuple[Reviewed, Reviewed]) -> None:
    for done in reviewed:
        claim = done.claim
        form, estimate, policy = (done.texts[name] for name in ("form", "estimate", "policy"))
        for value in (claim.number, claim.policy, claim.holder, claim.address, claim.lost_on, claim.cause):
            assert value in form
        for work, price in claim.work:
            assert work in estimate
            assert str(price) in estimate
        assert list(passages(policy)) == list(CLAUSES)
        # The schema lets only cells of the tables be chosen, and the model is a real one, if a very small one.
        assert done.fields.keys() == FIELDS["properties"].keys()
        right = [name for name, value in claim.fields.items() if done.fields[name] == value]
        assert len(right) >= 4, done.fields


def test_the_clause_that_a_claim_is_about_is_ranked_first(reviewed: tuple[Reviewed, Reviewed]) -> None:
    assert [done.ranking[0] for done in reviewed] == ["2.1", "2.2"]
    for done in reviewed:
        answer = done.answer("rerank")
        assert len(answer.items) == len(CLAUSES)
        assert len(done.ranking) == 3


def test_the_reviews_keep_to_their_schemas(reviewed: tuple[Reviewed, Reviewed]) -> None:
    for done in reviewed:
        jsonschema.validate(done.review, done.schema)
        assert done.review["claim_number"] == done.claim.number
        assert done.review["clause"] in done.ranking
        assert done.answer("review").items[0]["finish_reason"] == "stop"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**reviewed[0].review, "pay_pounds": FLOOD.total + 1}, reviewed[0].schema)


def test_the_photo_is_searched_for_damage(reviewed: tuple[Reviewed, Reviewed]) -> None:
    assert photo(FLOOD) == photo(FLOOD) != photo(PIPE)
    for done in reviewed:
        for found in done.answer("damage").items[0]["objects"]:
            left, top, width, height = found["bbox"]
            assert found["label"] in DAMAGE
            assert left >= 0
            assert top >= 0
            assert left + width <= SIZE[0]
            assert top + height <= SIZE[1]


def test_every_stage_says_which_weights_it_used_and_what_is_random_is_marked(
    stack: Any, reviewed: tuple[Reviewed, Reviewed], capsys: pytest.CaptureFixture[str]
) -> None:
    async def workers() -> Any:
        roost = Roost(stack.url, jobs=False)
        try:
            return await roost.residency()
        finally:
            await roost.close()

    print_models(SMALL)
    models = capsys.readouterr().out
    for stage, model in zip(STAGES, _of_stages(reviewed[0]), strict=True):
        line = next(line for line in models.splitlines() if line.split()[:1] == [stage])
        assert model.name in line
        assert ("RANDOM" in line) is model.random
        assert model.random is model.name.startswith("random/")
    for done in reviewed:
        print_stages(done)
    assert capsys.readouterr().out.count("this proves the path and nothing else") == 4
    print_times(reviewed, 1.0)
    print_residency(asyncio.run(workers()), SMALL)
    print_reviews(reviewed, SMALL.review)
    told = capsys.readouterr().out
    assert told.count("(random weights)") == 4
    assert told.count("resident") == 5
    assert '"claim_number": "CL-2041"' in told


def test_all_five_models_stay_in_one_worker_of_the_default_budget(
    stack: Any, reviewed: tuple[Reviewed, Reviewed]
) -> None:
    (worker,) = stack.client.get("/v1/residency").json()["data"]
    there = {model["model"]: model for model in worker["models"]}
    assert there.keys() == {model.name for model in SMALL.all()}
    for name, model in there.items():
        assert model["state"] == "resident", name
        assert model["loads"]["count"] == 1, name
        assert model["evictions"]["count"] == 0, name
    assert {job["worker"] for done in reviewed for job in _jobs(done)} == {worker["name"]}


def test_nothing_that_random_weights_found_goes_into_a_review(reviewed: tuple[Reviewed, Reviewed]) -> None:
    for done in reviewed:
        assert done.fields != done.answer("fields").items[0]["data"]
    believed = replace(SMALL, reader=None)
    assert believed.fields.random, "without a reader its fields would be believed"


def test_a_stage_that_the_service_refuses_says_what_the_service_said(stack: Any) -> None:
    async def refused(model: Model, **body: Any) -> Answer:
        roost = Roost(stack.url, jobs=False)
        try:
            return await roost.call("CL-0", "parse", model, **body)
        finally:
            await roost.close()

    with pytest.raises(StageFailed, match="parse: 422 unsupported_verb"):
        asyncio.run(refused(SMALL.rerank, verb="generate", items=["a"]))
    broken = [{"document": {"data": b"%PDF-1.7 and no more", "name": "broken.pdf"}}]
    with pytest.raises(StageFailed, match=r"CL-0 parse: job .* is failed"):
        asyncio.run(refused(SMALL.parse, verb="extract", items=broken))


def test_the_published_models_are_in_the_catalog_and_take_what_the_stages_send() -> None:
    catalog = Catalog.load()
    wanted: Mapping[str, str] = {
        ARTICLE.parse.name: "document",
        ARTICLE.fields.name: "structure",
        ARTICLE.damage.name: "objects",
    }
    for name, kind in wanted.items():
        facts = catalog.find(name).spec.tasks.extract
        assert facts is not None
        assert kind in facts.kinds
    assert catalog.find(ARTICLE.rerank.name).spec.tasks.score is not None
    writer = catalog.find(ARTICLE.review.name).spec
    assert writer.tasks.generate is not None
    assert "messages" in writer.inputs
    assert not any(model.random for model in ARTICLE.all())


def _of_stages(done: Reviewed) -> list[Model]:
    assert [answer.stage for answer in done.answers] == STAGES
    return [answer.model for answer in done.answers]


def _jobs(done: Reviewed) -> list[Mapping[str, Any]]:
    return [answer.job for answer in done.answers]
