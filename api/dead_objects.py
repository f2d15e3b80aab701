"""Dead letters as callers see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from api.schemas import Reply
from catalog.terms import Verb
from tasks.dead import Group, Redriven


class DeadGroup(Reply):
    """Failed jobs with one reason."""

    code: str
    model: str
    verb: Verb
    jobs: int
    first_at: Annotated[datetime, Field(description="When the first of them failed")]
    last_at: datetime
    example: Annotated[str, Field(description="The id of the newest")]
    killed_workers: Annotated[
        bool, Field(description="These ended their workers: they are tried again only if they are asked for, and alone")
    ]


class DeadList(Reply):
    """Groups, those with the most jobs first."""

    object: Literal["list"]
    data: list[DeadGroup]
    complete: Annotated[bool, Field(description="False where there are more failed jobs than are looked at")]


class NotRedriven(Reply):
    """A job that is not tried again, and why."""

    id: str
    reason: str


class RedrivenObject(Reply):
    """What came of it."""

    object: Literal["redriven"]
    redriven: int
    jobs: list[str]
    refused: list[NotRedriven]
    has_more: Annotated[bool, Field(description="Ask once more: more jobs match")]
    last_id: Annotated[
        str | None, Field(description="`after` of the next request: what has failed again by then is not tried again")
    ]


def group_object(group: Group) -> dict[str, Any]:
    """A group."""
    return {
        "code": group.code,
        "model": group.model,
        "verb": group.verb.value,
        "jobs": group.jobs,
        "first_at": group.first,
        "last_at": group.last,
        "example": str(group.example),
        "killed_workers": group.killed_workers,
    }


def redriven_object(redriven: Redriven) -> dict[str, Any]:
    """What came of a request to try jobs again."""
    return {
        "object": "redriven",
        "redriven": len(redriven.jobs),
        "jobs": [str(id_) for id_ in redriven.jobs],
        "refused": [{"id": str(id_), "reason": reason} for id_, reason in redriven.refused],
        "has_more": redriven.more,
        "last_id": None if redriven.last is None else str(redriven.last),
    }
