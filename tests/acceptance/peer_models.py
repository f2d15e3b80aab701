"""Small models in the layouts of published ones, for the suite of the peer's client. Most weights are random."""

from __future__ import annotations

from typing import Any

import yaml

from catalog.loader import BUILT_IN
from tests.acceptance.fakes import fake
from tests.acceptance.small_models import bge_m3, small, smollm2, whisper


def _prompted() -> dict[str, Any]:
    """The built-in MiniLM with a prompt for queries, which it has none of."""
    made: dict[str, Any] = yaml.safe_load((BUILT_IN / "sentence-transformers__all-MiniLM-L6-v2.yaml").read_text())
    del made["id"]
    made["tasks"]["encode"]["prompts"] = {"query": "What was asked: "}
    return made


def specs() -> dict[str, dict[str, Any]]:
    """By id, as the YAML of a catalog."""
    return {
        "small/bge-m3": bge_m3(profiles={"words": {"run": {"output_types": ["multivector"]}}}),
        "small/clip": small(
            "clip",
            "vision_text",
            tasks={"encode": {"dims": 48}},
            max_length=32,
            inputs=["text", "image"],
            image_length=5,
        ),
        "small/whisper": whisper(),
        "small/prompted": _prompted(),
        "small/broken": fake(faults=[{"kind": "fail_load", "reason": "corrupt"}]),
        "small/writer": smollm2(),
    }
