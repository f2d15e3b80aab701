"""What the example prints: what each stage found, where its time went, what it may be believed, and the reviews."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from examples.claims.calls import Answer
from examples.claims.models import NOTHING, Model, Models
from examples.claims.pipeline import DAMAGE, Reviewed

_TIMES = ("load", "queue", "batch_wait", "device")


def print_models(models: Models) -> None:
    """The model of each stage and where its weights are from."""
    stages = {"parse": models.parse, "fields": models.fields, "reading": models.reader}
    stages |= {"rerank": models.rerank, "damage": models.damage, "review": models.review}
    print(f"\nthe {models.name} models")
    for stage, model in stages.items():
        if model is not None:
            print(f"  {stage:<8} {model.name:<44} {model.weights}")


def print_stages(done: Reviewed) -> None:
    """What each stage of a claim found."""
    claim = done.claim
    print(f"\n{claim.number}, {claim.holder}: {claim.cause.lower()}, estimate {claim.total} pounds")
    for answer in done.answers:
        print(f"  {answer.stage:<8} {_found(done, answer)}")
        if answer.model.random:
            print(f"  {'':<8} {NOTHING}")


def _found(done: Reviewed, answer: Answer) -> str:
    claim, item = done.claim, answer.items[0]
    if answer.stage == "parse":
        pages = sum(one["data"]["pages"] for one in answer.items)
        tables = sum(len(one["data"]["tables"]) for one in answer.items)
        size = sum(map(len, done.texts.values()))
        return f"{len(answer.items)} papers, {pages} pages, {tables} tables, {size} characters"
    if answer.stage == "fields":
        return f"{_right(done, item['data'])}; {len(item['entities'])} entities by label"
    if answer.stage == "reading":
        return f"{_right(done, done.fields)}: {json.dumps(done.fields)}"
    if answer.stage == "rerank":
        mark = "as it should be" if done.ranking[0] == claim.clause else f"EXPECTED {claim.clause}"
        scores = ", ".join(f"{place['item_id']} {place['score']:.2f}" for place in answer.result["scores"])
        return f"{scores} of {len(answer.items)} clauses; clause {done.ranking[0]} first, {mark}"
    if answer.stage == "damage":
        boxes = ", ".join(f"{one['label']} {one['score']:.2f} at {one['bbox']}" for one in item["objects"])
        return boxes or f"nothing of {', '.join(DAMAGE)}"
    return f"{item['finish_reason']} after {answer.job['usage']['completion_tokens']} tokens, valid by its schema"


def _right(done: Reviewed, found: Mapping[str, Any]) -> str:
    """How many fields say what the example had written into the papers."""
    wanted = done.claim.fields
    right = sum(str(found.get(name) or "").replace(",", "") == value.replace(",", "") for name, value in wanted.items())
    return f"{right} of {len(wanted)} fields as in the papers"


def print_times(done: Sequence[Reviewed], whole_s: float) -> None:
    """One line for each stage of each claim, in milliseconds as its job tells; and the whole.

    `device` is all the time on the device, of batches that it shared with others as well; `share` is its own part.
    """
    heads = "".join(f"{name.replace('_', ' '):>11}" for name in _TIMES)
    print(f"\n{'ms':<8} {'stage':<8}{'waited':>9}{heads}{'share':>9}  model")
    for one in done:
        for answer in one.answers:
            times = "".join(f"{answer.job['timings'][f'{name}_ms']:>11.1f}" for name in _TIMES)
            mark = "  (random weights)" if answer.model.random else ""
            print(
                f"{answer.claim:<8} {answer.stage:<8}{answer.waited_ms:>9.1f}{times}"
                f"{answer.job['cost']['device_ms']:>9.1f}  {answer.model.name}{mark}"
            )
    waited = sum(answer.waited_ms for one in done for answer in one.answers) / 1000
    print(f"the whole took {whole_s:.1f} s; the stages were waited for {waited:.1f} s in all")


def print_residency(workers: Sequence[Mapping[str, Any]], models: Models) -> None:
    """Where the models are, and how many items shared how many batches."""
    wanted = {model.name for model in models.all()}
    print("\non the worker, as of its last beat")
    for worker in workers:
        memory = worker["memory"]
        print(f"  {worker['name']}: {_mib(memory['weights'])} of models, budget {_mib(memory['budget'])}")
        for one in worker["models"]:
            if one["model"] not in wanted:
                continue
            work = one["work"]
            batches = f"{work['items']} items in {work['batches']} passes" if work else "no work"
            held = one["bytes"]["weights"] + one["bytes"]["host"]
            print(f"  {one['model']:<44} {one['state']:<9} {_mib(held):>9}  {batches}")


def print_reviews(done: Sequence[Reviewed], writer: Model) -> None:
    """The reviews as they were written."""
    print(f"\nreviews, written by {writer.name}")
    for one in done:
        print(json.dumps(one.review, indent=2, ensure_ascii=False))
    if "135M" in writer.name:
        print("Their form is held by the schema. What a model of 135 million weights decides is not to be relied on.")


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
