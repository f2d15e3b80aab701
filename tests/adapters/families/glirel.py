"""A GLiREL with random heads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catalog.schema import ExtractFacts, ExtractKind, Source, Spec, Tasks
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

LABELS = ["works for", "lives in", "paid"]
TEXTS = [
    ("Ada Lovelace works for ACME in London.", ["Ada Lovelace", "ACME", "London"]),
    ("Ben paid Cleo.", ["Ben", "Cleo"]),
    ("Nobody is here.", ["Nobody"]),
    ("The court of Berlin fined ACME, and Ben Okafor of Lagos paid at once.", ["court", "ACME", "Ben Okafor", "Lagos"]),
]


def with_entities(text: str, names: Sequence[str]) -> Payload:
    """An item with the first mention of each name."""
    places = [(text.index(name), text.index(name) + len(name)) for name in names]
    return {"text": text, "entities": [{"start": start, "end": end, "label": "name"} for start, end in places]}


def model(kind: str) -> Callable[[], tuple[Spec, Path | None]]:
    spec = Spec(
        id=f"random/glirel-{kind}",
        family="glirel",
        tasks=Tasks(extract=ExtractFacts(kinds=(ExtractKind.RELATIONS,))),
        source=Source(needs=("pickle",) if kind == "pickled" else ()),
        inputs=("text", "entities"),
        parameters=5_000_000,
        max_length=128,
    )
    return lambda: (spec, folder("glirel") / kind)


def items() -> Sequence[Payload]:
    return [with_entities(text, names) for text, names in TEXTS]


def found(output: Output) -> Any:
    return sorted(
        (one["head"]["text"], one["tail"]["text"], one["relation"], one["score"]) for one in output.fields["relations"]
    )


def library(path: Path | None) -> Any:
    """The model by its library's own loader: the public call above that no longer fits the hub's client."""
    from glirel import GLiREL

    settings = {"force_download": False, "proxies": None, "resume_download": False, "local_files_only": True}
    return GLiREL._from_pretrained(model_id=str(path), revision=None, cache_dir=None, token=None, **settings).eval()


def reference(**options: Any) -> Callable[[Path | None, str], Answers]:
    def call(path: Path | None, device: str) -> Answers:
        own = library(path).to(device)

        def answers(payloads: Sequence[Payload]) -> list[Any]:
            found: list[Any] = []
            for one in payloads:
                words = list(re.finditer(r"\w+(?:[-_]\w+)*|\S", one["text"]))
                spans = []
                for known in one["entities"]:
                    inside = [i for i, word in enumerate(words) if known["start"] <= word.start() < known["end"]]
                    spans.append([inside[0], inside[-1], "name", ""])
                if len(spans) < 2:
                    found.append([])
                    continue
                tokens = [word[0] for word in words]
                related = own.predict_relations(tokens, LABELS, ner=spans, **options)

                def text(place: list[int], words: list[re.Match[str]] = words, whole: str = one["text"]) -> str:
                    return whole[words[place[0]].start() : words[place[1] - 1].end()]

                found.append(
                    sorted((text(r["head_pos"]), text(r["tail_pos"]), r["label"], r["score"]) for r in related)
                )
            return found

        return answers

    return call


def case(name: str, kind: str, **options: Any) -> Case:
    return Case(
        name=name,
        model=model(kind),
        verb=Verb.EXTRACT,
        items=items,
        options={"labels": LABELS, **options},
        bad=({}, {"text": "no entities"}, {"text": "half \ud83d pair", "entities": []}),
        reference=reference(**options),
        found=found,
    )


CASES = [
    case("all", "safe", threshold=0.0),
    case("best", "safe", threshold=0.3, top_k=1),
    case("pickled", "pickled", threshold=0.5),
]
