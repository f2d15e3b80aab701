"""The way of a claim: its papers are parsed, fields pulled, policy passages ranked, damage detected, a review written.

Each stage is one call of the service, and each feeds the next. Detection needs nothing of the papers, so as jobs it
runs beside them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema

from examples.claims import papers
from examples.claims.calls import Answer, Roost, StageFailed
from examples.claims.cases import Claim
from examples.claims.models import Models
from examples.claims.photo import photo

LABELS = ["person", "address", "date", "money"]
DAMAGE = ["water", "stain", "mud"]
FIELDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "claim_number": {"type": "string", "description": "number of the claim"},
        "policyholder": {"type": "string", "description": "name of the person who is insured"},
        "address": {"type": "string", "description": "address of the home"},
        "date_of_loss": {"type": "string", "description": "date on which the damage happened"},
        "cause": {"type": "string", "description": "cause of the damage"},
        "total": {"type": "string", "description": "total of the repair estimate"},
    },
}
_CLAUSE = re.compile(r"^#*\s*(\d\.\d)\s", re.MULTILINE)
_WORDS = "^[A-Z][A-Za-z'-]{0,15}(,? [A-Za-z'-]{1,16}){5,18}\\.$"
"""A short sentence of words alone: of figures and blanks the smallest models find no end."""
_TOP = 3


@dataclass(frozen=True)
class Reviewed:
    """A claim at its end: every stage's answer, the fields that were believed, and the review with its schema."""

    claim: Claim
    answers: tuple[Answer, ...]
    texts: Mapping[str, str]
    fields: Mapping[str, Any]
    ranking: tuple[str, ...]
    schema: Mapping[str, Any]
    review: Mapping[str, Any]

    def answer(self, stage: str) -> Answer:
        """The answer of one stage."""
        return next(answer for answer in self.answers if answer.stage == stage)


async def review_claim(roost: Roost, models: Models, claim: Claim) -> Reviewed:
    """Take a claim through all stages. Raises StageFailed, and jsonschema.ValidationError for a review that is none."""
    if roost.jobs:
        # The photo is looked at while the papers are read.
        read, damage = await asyncio.gather(_read(roost, models, claim), _detect(roost, models, claim))
    else:
        read, damage = await _read(roost, models, claim), await _detect(roost, models, claim)
    seen = None if models.damage.random else [found["label"] for found in damage.items[0]["objects"]]
    schema = review_schema(claim, read)
    written = await roost.call(
        claim.number,
        "review",
        models.review,
        verb="generate",
        items=[{"id": claim.number, "messages": _brief(claim, read, seen)}],
        options={"max_tokens": 400, "grammar": {"json_schema": schema}},
    )
    text, reason = written.items[0]["text"], written.items[0]["finish_reason"]
    if reason != "stop":
        raise StageFailed(f"{claim.number} review: ended by {reason}: {text}")
    review = json.loads(text)
    jsonschema.validate(review, schema, format_checker=jsonschema.FormatChecker())
    answers = (*read.answers, damage, written)
    return Reviewed(claim, answers, read.texts, read.fields, read.ranking, schema, review)


@dataclass(frozen=True)
class _Read:
    """What the papers gave: their texts, the fields and where they were found, the policy's clauses, the best first."""

    answers: tuple[Answer, ...]
    texts: Mapping[str, str]
    fields: Mapping[str, Any]
    clauses: Mapping[str, str]
    ranking: tuple[str, ...]


async def _read(roost: Roost, models: Models, claim: Claim) -> _Read:
    drawn = {"form": papers.form(claim), "estimate": papers.estimate(claim), "policy": papers.policy(claim)}
    items = [{"id": name, "document": {"data": data, "name": f"{name}.pdf"}} for name, data in drawn.items()]
    parsed = await roost.call(claim.number, "parse", models.parse, verb="extract", items=items)
    texts = {item["id"]: item["data"]["markdown"] for item in parsed.items}
    both = f"{texts['form']}\n\n{texts['estimate']}"
    pulled = await roost.call(
        claim.number,
        "fields",
        models.fields,
        verb="extract",
        items=[{"id": claim.number, "text": both}],
        labels=LABELS,
        output_schema=FIELDS,
    )
    fields, answers = pulled.items[0]["data"], [parsed, pulled]
    if models.reader is not None:
        cells = values(parsed.items[:2])
        chosen = {"type": "object", "properties": {name: {"enum": cells} for name in FIELDS["properties"]}}
        again = await roost.call(
            claim.number,
            "reading",
            models.reader,
            verb="generate",
            items=[{"id": claim.number, "messages": _question(both)}],
            options={"max_tokens": 200, "grammar": {"json_schema": {**chosen, **_closed(chosen)}}},
        )
        fields = json.loads(again.items[0]["text"])
        answers.append(again)
    clauses = passages(texts["policy"])
    ranked = await roost.call(
        claim.number,
        "rerank",
        models.rerank,
        verb="score",
        query=told(texts["form"]),
        items=[{"id": number, "text": text} for number, text in clauses.items()],
        options={"top_n": _TOP},
    )
    ranking = tuple(place["item_id"] for place in ranked.result["scores"])
    return _Read((*answers, ranked), texts, fields, clauses, ranking)


async def _detect(roost: Roost, models: Models, claim: Claim) -> Answer:
    return await roost.call(
        claim.number,
        "damage",
        models.damage,
        verb="extract",
        items=[{"id": claim.number, "images": [{"data": photo(claim), "format": "jpeg"}]}],
        labels=DAMAGE,
        options={"box_threshold": 0.25, "top_k": 5},
    )


def values(parsed: Sequence[Mapping[str, Any]]) -> list[str]:
    """The right-hand cells of all tables of the papers, which are what was filled in; each once."""
    rows = [row for paper in parsed for table in paper["data"]["tables"] for row in table["rows"]]
    return list(dict.fromkeys(row[-1].strip() for row in rows if row and row[-1].strip()))


def told(form: str) -> str:
    """What happened, in the words of the form."""
    return form.split("What happened", 1)[-1].strip()


def passages(policy: str) -> dict[str, str]:
    """The clauses of the parsed policy by their numbers, each with its title."""
    starts = list(_CLAUSE.finditer(policy))
    ends = [start.start() for start in starts[1:]] + [len(policy)]
    return {start[1]: " ".join(policy[start.end() : end].split()) for start, end in zip(starts, ends, strict=True)}


def review_schema(claim: Claim, read: _Read) -> dict[str, Any]:
    """What a review of this claim may be: only clauses that were ranked, and no more money than the estimate has."""
    made = {
        "type": "object",
        "properties": {
            "claim_number": {"const": claim.number},
            "clause": {"enum": list(read.ranking)},
            "reason": {"type": "string", "pattern": _WORDS},
            "decision": {"enum": ["pay", "pay in part", "refer to an adjuster", "decline"]},
            "pay_pounds": {"type": "integer", "minimum": 0, "maximum": claim.total},
        },
    }
    return {**made, **_closed(made)}


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": list(schema["properties"]), "additionalProperties": False}


def _question(text: str) -> list[dict[str, str]]:
    asked = "\n".join(f"{name}: {one['description']}" for name, one in FIELDS["properties"].items())
    return [{"role": "user", "content": f"{text}\n\nGive these fields of the papers above as JSON.\n{asked}"}]


def _brief(claim: Claim, read: _Read, seen: Sequence[str] | None) -> list[dict[str, str]]:
    """What the review is written from. Of a detector with random weights nothing is told."""
    clauses = "\n".join(f"Clause {number}: {read.clauses[number]}" for number in read.ranking)
    photo = "" if seen is None else f"\n\nSeen in the photo: {', '.join(seen) or 'none of ' + ', '.join(DAMAGE)}"
    facts = "\n".join(f"{name}: {value}" for name, value in read.fields.items())
    return [
        {
            "role": "system",
            "content": "You review insurance claims. Answer in JSON, and keep to what the papers say.",
        },
        {
            "role": "user",
            "content": (
                f"Claim {claim.number}\n{facts}\n\nWhat happened: {told(read.texts['form'])}\n\n"
                f"Estimate:\n{read.texts['estimate']}\n\nClauses of the policy, the most fitting first:\n{clauses}"
                f"{photo}\n\nWhich clause decides, for what reason, what is decided, how many pounds are to be paid?"
            ),
        },
    ]
