"""The words that every layer shares."""

from __future__ import annotations

from enum import StrEnum


class Verb(StrEnum):
    """What a job asks of a model."""

    ENCODE = "encode"
    SCORE = "score"
    EXTRACT = "extract"
    GENERATE = "generate"


class Lane(StrEnum):
    """Interactive work goes first; bulk gives way but always advances."""

    INTERACTIVE = "interactive"
    BULK = "bulk"
