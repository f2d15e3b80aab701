"""A claim by the calls of the article, made with the peer's own client, `sie-sdk` 0.10.1, unmodified: `make article`.

The calls stand as they were printed, but for one word. `generate` of this client keeps only the fields of the reply
that it knows, so `result["data"]` of the article is no key of it, whatever the service sends; `data_of` reads it from
`result["text"]`. Over HTTP the reply has both.

Needs Python 3.12, sie-sdk, reportlab and a stack that runs: `python -m examples.claims.article --url http://…`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sie_sdk import SIEClient
from sie_sdk.types import Item

from examples.claims import papers
from examples.claims.cases import CLAIMS, Claim
from examples.claims.models import NOTHING
from examples.claims.photo import photo
from examples.claims.pipeline import DAMAGE, LABELS, passages, told

PARSER = "docling"
FIELDS = "fastino/gliner2-large-v1"
RERANKER = "BAAI/bge-reranker-v2-m3"
DETECTOR = "IDEA-Research/grounding-dino-tiny"
WRITER = "Qwen/Qwen3.5-4B:no-spec"


@dataclass(frozen=True)
class Findings:
    """What each call gave: the text of the papers, entities, clauses ranked best first, boxes, and the review."""

    markdown: dict[str, str]
    fields: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    damage: list[dict[str, Any]]
    review: Any


def review_claim(client: SIEClient, claim: Claim, folder: Path) -> Findings:
    """The article's calls, each feeding the next. `folder` gets the papers and the photo."""
    paths = write_papers(claim, folder)

    markdown = {}
    for name in ("form", "policy"):
        result = client.extract(PARSER, Item(id=name, document=paths[name]), options={"profile": "default"})
        markdown[name] = result["data"]["markdown"]

    result = client.extract(FIELDS, Item(id="form", text=markdown["form"]), labels=LABELS)
    fields = result["data"]

    clauses = [Item(id=number, text=text) for number, text in passages(markdown["policy"]).items()]
    scores = client.score(RERANKER, Item(id="claim", text=told(markdown["form"])), clauses)["scores"]
    best = next(clause["text"] for clause in clauses if clause["id"] == scores[0]["item_id"])

    photo_item = Item(id="photo", images=[paths["photo"]])
    result = client.extract(DETECTOR, photo_item, labels=DAMAGE, options={"score_threshold": 0.05})
    damage = result["data"]

    account = f"What happened: {' '.join(told(markdown['form']).split())}\nClause {scores[0]['item_id']}: {best}"
    prompt = f"{account}\nClaim {claim.number}.\n\nIs the claim covered? Answer in one sentence.\n"
    result = client.generate(WRITER, prompt, max_new_tokens=1500, temperature=0, top_p=1)
    return Findings(markdown, fields, scores, damage, data_of(result["text"]))


def data_of(text: str) -> Any:
    """What the service sends as `data`: the text read as JSON if it is that, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def write_papers(claim: Claim, folder: Path) -> dict[str, Path]:
    """The claim form, the policy and the photo, drawn into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {"form": papers.form(claim), "policy": papers.policy(claim), "photo": photo(claim)}
    paths = {name: folder / f"{name}.{'jpg' if name == 'photo' else 'pdf'}" for name in drawn}
    for name, data in drawn.items():
        paths[name].write_bytes(data)
    return paths


def main(arguments: list[str] | None = None) -> int:
    """Run the script on one claim and print what came back, and what the weights behind each name are."""
    parser = argparse.ArgumentParser(prog="python -m examples.claims.article", description=__doc__)
    parser.add_argument("--url", required=True, help="the API of a stack that runs")
    parser.add_argument("--folder", type=Path, default=Path(".roost/article"), help="where the papers are drawn")
    chosen = parser.parse_args(arguments)
    with SIEClient(chosen.url) as client:
        found = review_claim(client, CLAIMS[0], chosen.folder)
    report(chosen.url, found)
    print(f"\n$ curl {chosen.url}/readyz\n{httpx.get(f'{chosen.url}/readyz').text}")
    return 0


def report(url: str, found: Findings) -> None:
    """Print what each call gave, beside what the service says of its model."""
    about = {name: described(url, name) for name in (PARSER, FIELDS, RERANKER, DETECTOR, WRITER)}
    show(PARSER, about, f"{sum(map(len, found.markdown.values()))} characters of {', '.join(found.markdown)}")
    show(FIELDS, about, ", ".join(f"{one['label']} {one['text']!r} {one['score']:.2f}" for one in found.fields[:4]))
    show(RERANKER, about, ", ".join(f"{one['item_id']} {one['score']:.2f}" for one in found.scores[:3]))
    show(DETECTOR, about, ", ".join(f"{one['label']} {one['score']:.2f} at {one['bbox']}" for one in found.damage[:4]))
    show(WRITER, about, repr(found.review))


def described(url: str, model: str) -> str:
    """What the service says of a model; of a stand-in it says so."""
    answer = httpx.get(f"{url}/v1/models/{model}")
    answer.raise_for_status()
    description: str = answer.json()["description"]
    return description


def show(model: str, about: dict[str, str], found: str) -> None:
    """One model, what it gave, and what may be believed of it."""
    print(f"\n{model}\n  {about[model]}\n  {found}")
    if "random" in about[model]:
        print(f"  {NOTHING}")


if __name__ == "__main__":
    sys.exit(main())
