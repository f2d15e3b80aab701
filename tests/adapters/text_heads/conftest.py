"""Adapters of small models by family and folder, each loaded once, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from catalog.options import parse_options
from catalog.schema import Spec
from catalog.terms import Verb
from engine.adapters.base import Adapter
from engine.families import adapter_class
from engine.types import Outcome
from tests.adapters.conftest import batch

KINDS: dict[str, dict[str, Any]] = {
    "cross_encoder": {"score": {"scale": "probability"}},
    "causal_reranker": {"score": {"scale": "probability"}},
    "token_classifier": {"extract": {"kinds": ["entities"]}},
    "sequence_classifier": {"extract": {"kinds": ["classifications"]}},
    "zero_shot_nli": {"extract": {"kinds": ["classifications"]}},
}

Load = Callable[..., Adapter]
Ask = Callable[..., list[Outcome]]


def built(family: str, folder: Path, device: str, max_length: int, load: dict[str, Any], **facts: Any) -> Adapter:
    ((verb, own),) = KINDS[family].items()
    spec = Spec.model_validate(
        {
            "id": f"random/{folder.name.rpartition('-')[0] or folder.name}",
            "family": family,
            "source": {"path": str(folder)},
            "tasks": {verb: {**own, **facts}},
            "parameters": 1,
            "max_length": max_length,
        }
    )
    kind = adapter_class(family)
    return kind(spec, kind.options.model_validate(load), folder, device)


@pytest.fixture(scope="session")
def load(device: str) -> Iterator[Load]:
    """A loaded adapter of a folder; the same call gives the same one. `load` options come by their names."""
    made: dict[str, Adapter] = {}

    def loaded(family: str, folder: Path, max_length: int = 128, *, facts: Any = None, **options: Any) -> Adapter:
        key = repr((family, folder, max_length, facts, options))
        if key not in made:
            adapter = built(family, folder, device, max_length, options, **(facts or {}))
            adapter.load()
            made[key] = adapter
        return made[key]

    yield loaded
    for adapter in made.values():
        adapter.unload()


@pytest.fixture(scope="session")
def ask() -> Ask:
    """The outcomes of payloads in one batch; `options` is of all, or one map for each."""

    def asked(adapter: Adapter, payloads: Sequence[dict[str, Any]], *each: dict[str, Any], **options: Any) -> Any:
        verb = Verb.SCORE if adapter.spec.tasks.score else Verb.EXTRACT
        sent = each or [options] * len(payloads)
        return list(adapter.run(batch(verb, payloads, [parse_options(adapter.spec, verb, {}, one) for one in sent])))

    return asked
