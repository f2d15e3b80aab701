"""A late-interaction model of random weights, and batches of both verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.schema import Spec
from engine.adapters.late_interaction import LateInteractionAdapter, LateInteractionOptions
from tests.small import folder


@pytest.fixture(scope="session")
def build(device: str) -> Callable[..., LateInteractionAdapter]:
    """An adapter of a folder, not loaded, under some facts and load options."""

    def late(files: Path, width: int = 32, longest: int = 128, **options: Any) -> LateInteractionAdapter:
        made = {
            "id": "random/late",
            "family": "late_interaction",
            "tasks": {
                "encode": {"token_dims": width, "outputs": ["multivector"], "prompts": {"task": "find ships: "}},
                "score": {"scale": "similarity"},
            },
            "parameters": 1,
            "max_length": longest,
        }
        parsed = LateInteractionOptions.model_validate(options)
        return LateInteractionAdapter(Spec.model_validate(made), parsed, files, device)

    return late


@pytest.fixture(scope="module")
def colbert(build: Callable[..., LateInteractionAdapter]) -> Iterator[LateInteractionAdapter]:
    adapter = build(folder("colbert"))
    adapter.load()
    yield adapter
    adapter.unload()
