"""What of a list is shown: the models that are asked for, and the jobs that changed."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.commands.jobs import changed
from deploy.models import narrowed
from roost import JobInfo

MODELS: list[dict[str, Any]] = [
    {"id": "acme/owl", "family": "fake", "verbs": ["encode"], "description": "Sees at night."},
    {"id": "acme/wren", "family": "gliner", "verbs": ["extract"], "description": "Sings."},
]


@pytest.mark.parametrize(
    ("verb", "family", "word", "ids"),
    [
        (None, None, "", ["acme/owl", "acme/wren"]),
        ("extract", None, "", ["acme/wren"]),
        (None, "fake", "", ["acme/owl"]),
        (None, None, "NIGHT", ["acme/owl"]),
        ("encode", "gliner", "", []),
    ],
)
def test_a_list_of_models_is_narrowed(verb: str | None, family: str | None, word: str, ids: list[str]) -> None:
    assert [model["id"] for model in narrowed(MODELS, verb, family, word)] == ids


def job(name: str, status: str, failed: int = 0) -> JobInfo:
    return JobInfo(name, status, "encode", "acme/owl", 2, failed, {})


def test_only_jobs_that_are_new_or_stand_otherwise_are_told() -> None:
    seen = {"a": job("a", "queued"), "b": job("b", "running"), "c": job("c", "succeeded")}
    now = [job("d", "queued"), job("a", "running"), job("b", "running"), job("c", "succeeded")]
    assert [one.id for one in changed(now, seen)] == ["d", "a"]
    assert changed(now, {one.id: one for one in now}) == []
