"""Settings of the engine, from the environment of a real child to what it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.messages import Submission

NewJob = Callable[..., Submission]
Texts = Callable[..., bytes]
StartChild = Callable[..., Any]


def write(folder: Path, name: str, family: str, load: dict[str, Any], **more: Any) -> None:
    spec = {"id": name, "family": family, "tasks": {"encode": {"dims": 8}}, "parameters": 0, "max_length": 512}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec | {"load": load} | more))


def test_as_many_models_load_at_once_as_there_are_loaders(
    start_child: StartChild, new_job: NewJob, texts: Texts
) -> None:
    endless = {"load_seconds": 600.0}
    child = start_child({"a": endless, "b": endless, "c": endless}, loaders=2)
    child.run(*(new_job(inputs=texts("x"), stored=False, model=name) for name in "abc"))
    # Neither ends, so the second begins beside the first or never.
    assert {child.next("loading")[1] for _ in range(2)} < set("abc")


@pytest.mark.parametrize(("eviction", "stays"), [("lru", "cheap"), ("value", "dear")])
def test_who_leaves_is_as_the_operator_says(
    start_child: StartChild, new_job: NewJob, texts: Texts, eviction: str, stays: str
) -> None:
    models = {"dear": {"bytes": 100, "load_seconds": 0.4}, "cheap": {"bytes": 100}, "new": {"bytes": 100}}
    child = start_child(models, eviction=eviction, min_stay_s=0, pace_s=0, budget=250)
    # What was used last, and what takes long to come back, are not the same one.
    for name in ("dear", "cheap", "new"):
        child.run(new_job(inputs=texts("x"), stored=False, model=name))
        child.done(1)
    there: set[str] = set()
    while "new" not in there:
        there = set(child.next("residents")[1])
    assert there == {stays, "new"}


def test_as_many_batches_run_on_the_host_as_it_has_lanes(
    start_child: StartChild, new_job: NewJob, texts: Texts, tmp_path: Path
) -> None:
    write(tmp_path, "parser", "fake_parser", {"faults": [{"kind": "hang"}]})
    child = start_child(host_lanes=3, batch_items=1)
    jobs = [new_job(inputs=texts("x"), stored=False, model="parser") for _ in range(4)]
    child.run(*jobs)
    started = {key for _ in range(3) for key in child.next("started")[2]}
    assert len(started) == 3
    assert started < {str(job.id) for job in jobs}


def test_a_step_takes_no_more_than_it_may(
    start_child: StartChild, new_job: NewJob, texts: Texts, tmp_path: Path
) -> None:
    cost = {"base": 0.0, "per_token": 1.0, "per_new": 1.0}
    write(tmp_path, "writer", "fake_generator", {"new_tokens": 1, "read_seconds": 0.001}, cost=cost)
    child = start_child(step_ms=5)
    job = new_job(inputs=texts("word " * 200), stored=False, model="writer", lengths=[200])
    child.run(job)
    # Four would do at the default of 50 ms; a step reads 16 tokens at least.
    for _ in range(8):
        child.next("started")
    assert child.done(1) == {str(job.id): "succeeded"}
