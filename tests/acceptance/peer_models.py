"""Small models in the layouts of published ones, for the suite of the peer's client. Most weights are random."""

from __future__ import annotations

from typing import Any

import yaml

from catalog.loader import BUILT_IN
from tests.acceptance.fakes import fake
from tests.small import folder


def _prompted() -> dict[str, Any]:
    """The built-in MiniLM with a prompt for queries, which it has none of."""
    made: dict[str, Any] = yaml.safe_load((BUILT_IN / "sentence-transformers__all-MiniLM-L6-v2.yaml").read_text())
    del made["id"]
    made["tasks"]["encode"]["prompts"] = {"query": "What was asked: "}
    return made


def specs() -> dict[str, dict[str, Any]]:
    """By id, as the YAML of a catalog."""
    return {
        "small/bge-m3": {
            "family": "bge_m3",
            "source": {"path": str(folder("bge_m3"))},
            "tasks": {
                "encode": {
                    "dims": 48,
                    "sparse_dims": 1000,
                    "token_dims": 32,
                    "outputs": ["dense", "sparse", "multivector"],
                },
                "score": {"scale": "similarity"},
            },
            "parameters": 100_000,
            "max_length": 96,
            "inputs": ["text", "multivector"],
            "profiles": {"words": {"run": {"output_types": ["multivector"]}}},
        },
        "small/clip": {
            "family": "vision_text",
            "source": {"path": str(folder("clip"))},
            "tasks": {"encode": {"dims": 48}},
            "parameters": 300_000,
            "max_length": 32,
            "inputs": ["text", "image"],
            "image_length": 5,
        },
        "small/whisper": {
            "family": "whisper",
            "source": {"path": str(folder("whisper_tiny_en"))},
            "tasks": {"extract": {"kinds": ["transcript"], "tasks": ["transcribe"]}},
            "parameters": 37_760_256,
            "max_length": 7200,
            "unit": "seconds",
            "inputs": ["audio"],
        },
        "small/prompted": _prompted(),
        "small/broken": fake(faults=[{"kind": "fail_load", "reason": "corrupt"}]),
        "small/writer": {
            "family": "causal_lm",
            "source": {"path": str(folder("smollm2"))},
            "tasks": {"generate": {"max_new_tokens": 24}},
            "inputs": ["text", "messages"],
            "parameters": 134_515_008,
            "max_length": 2048,
            "load": {"dtype": "float32"},
        },
    }
