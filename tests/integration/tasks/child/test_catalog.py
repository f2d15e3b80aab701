"""A child whose catalog changes while it works, and jobs of models that no YAML names."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from tasks.db import Database
from tasks.jobs import Job
from tasks.messages import Submission
from tasks.results import unpack_rows
from tasks.store import read

NewJob = Callable[..., Submission]
Row = Callable[[Submission], Job]
Texts = Callable[..., bytes]
StartChild = Callable[..., Any]


def write(folder: Path, dims: int) -> None:
    spec = {"id": "acme/owl", "family": "fake", "tasks": {"encode": {"dims": dims}}, "parameters": 0, "max_length": 9}
    draft = folder / ".owl"
    draft.write_text(yaml.safe_dump(spec))
    draft.replace(folder / "owl.yaml")


def dims_of(database: Database, job: Submission) -> int:
    found = database.run(read.result, job.id, job.caller)
    assert found.rows is not None
    dims: int = unpack_rows(found.rows)[0]["dense"]["dims"]
    return dims


def test_a_model_that_changes_is_told_anew_and_loaded_as_it_is_now(
    start_child: StartChild, database: Database, stored_job: NewJob, texts: Texts, tmp_path: Path
) -> None:
    write(tmp_path, 8)
    child = start_child(catalog_poll_s=0.05)
    assert "acme/owl" in child.next("knows")[1]
    before = stored_job(inputs=texts("a text"), model="acme/owl")
    child.run(before)
    assert child.done(1) == {str(before.id): "succeeded"}
    write(tmp_path, 4)
    assert "acme/owl" in child.next("knows")[1]
    after = stored_job(inputs=texts("a text"), model="acme/owl", id=UUID(int=before.id.int + 1))
    child.run(after)
    assert child.done(1) == {str(after.id): "succeeded"}
    assert (dims_of(database, before), dims_of(database, after)) == (8, 4)


def test_a_job_of_a_model_that_no_yaml_names_is_refused_by_what_is_found_of_it_here(
    start_child: StartChild, stored_job: NewJob, row: Row, texts: Texts, tmp_path: Path
) -> None:
    folder = tmp_path / "models" / "org" / "m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["VitsModel"]}))
    child = start_child(model_folders=tmp_path / "models")
    assert child.next("knows")[2] is True
    unserved = stored_job(inputs=texts("a text"), model="org/m@local-0")
    gone = replace(stored_job(inputs=texts("a text"), id=UUID(int=unserved.id.int + 1)), model="org/gone@local-0")
    child.run(unserved, gone)
    assert child.done(2) == {str(unserved.id): "failed", str(gone.id): "failed"}
    error = row(unserved).error
    assert error is not None
    assert error["code"] == "weights_unavailable"
