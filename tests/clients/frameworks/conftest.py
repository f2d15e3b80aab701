"""Real models of a few million weights, and texts of which one is the answer."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, Field

EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
WRITER = "roost/smollm2-135m-gguf"


class Verdict(BaseModel):
    """What is decided of a claim."""

    decision: str = Field(pattern="^(pay|decline)$")
    pounds: int = Field(ge=0, le=9)


@pytest.fixture(scope="session")
def embedder() -> str:
    return EMBEDDER


@pytest.fixture(scope="session")
def writer() -> str:
    return WRITER


@pytest.fixture(scope="session")
def passages() -> list[str]:
    return [
        "The river came over its bank and flooded the ground floor.",
        "Bread is made of flour, water, salt and yeast.",
        "The violin has four strings and is played with a bow.",
        "A burst pipe let water into the kitchen all night.",
    ]


@pytest.fixture(scope="session")
def question() -> str:
    """Of the third passage."""
    return "Which musical instrument has strings?"


@pytest.fixture(scope="session")
def verdict() -> type[BaseModel]:
    """A form for answers, which the smallest model can only fill in if it is held to it."""
    return Verdict
