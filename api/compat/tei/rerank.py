"""TEI's /rerank: a job of the verb `score`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from api.compat.endpoints import Asked, Ended
from api.compat.failures import check_rows
from api.compat.openai.texts import listed
from api.compat.shapes import shaped
from api.compat.tei.work import Cutting, Work
from api.schemas import Reply
from catalog.schema import Spec
from catalog.terms import Verb


class TeiRerankRequest(Cutting):
    """Texts to rank."""

    query: str
    texts: Annotated[list[str], Field(min_length=1, fail_fast=True)]
    raw_scores: Annotated[bool | None, Field(description="Scores before the model's activation")] = None
    return_text: Annotated[bool | None, Field(description="Give each text back beside its score")] = None


class Rank(Reply):
    """One place of the ranking."""

    index: Annotated[int, Field(description="The text's place in the request")]
    score: float
    text: str | None = None


_NAMES: Mapping[str, str] = {"items": "texts", "verb": "model", "options": ""}


def to_job(model: str, body: Mapping[str, Any]) -> Asked:
    """The score job of a body. Raises an error that names the field."""
    asked = shaped(TeiRerankRequest, body)
    raw = {
        "verb": Verb.SCORE.value,
        "model": model,
        "query": asked.query,
        "items": listed(asked.texts, "texts"),
        "options": {"truncate": bool(asked.truncate)},
    }
    return Asked(raw, _NAMES)


def to_reply(ended: Ended, body: Mapping[str, Any]) -> list[Any]:
    """The whole ranking, best first. Raises the error of the first text that has no score."""
    check_rows(ended, _NAMES)
    field = "raw_score" if body.get("raw_scores") else "score"
    texts = body["texts"] if body.get("return_text") else None
    ranks = []
    for place in (score["index"] for score in ended.scores or ()):
        row = ended.rows[place]
        rank = {"index": place, "score": row.get(field, row["score"])}
        ranks.append(rank if texts is None else {**rank, "text": texts[place]})
    return ranks


def _fits(spec: Spec) -> bool:
    return spec.tasks.score is not None


RERANK = Work("score texts against a query", _fits, to_job, to_reply)
