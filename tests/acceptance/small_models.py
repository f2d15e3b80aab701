"""Small real models of tests/small as the YAML of a catalog, and the settings of a stack that loads them."""

from __future__ import annotations

from typing import Any

from tests.small import folder

PATIENT = {"lost_after_s": 15.0, "held_lease_s": 60.0, "job_lease_s": 60.0}
"""Loads on a busy machine keep a worker from saying that it lives."""


def small(name: str, family: str, **facts: Any) -> dict[str, Any]:
    """A model of tests/small. Builds it, which takes a while the first time."""
    source = {"path": str(folder(name))}
    return {"family": family, "source": source, "parameters": 5_000_000, "max_length": 128, **facts}


def smollm2() -> dict[str, Any]:
    """A chat model with real weights that calls tools and keeps to grammars."""
    tasks = {"generate": {"max_new_tokens": 24, "tools": True}}
    facts = {"inputs": ["text", "messages"], "max_length": 2048, "load": {"dtype": "float32"}}
    return small("smollm2", "causal_lm", tasks=tasks, parameters=134_515_008, **facts)


def whisper() -> dict[str, Any]:
    """Whisper tiny.en with its real weights."""
    tasks = {"extract": {"kinds": ["transcript"], "tasks": ["transcribe"]}}
    facts = {"max_length": 7_200, "unit": "seconds", "inputs": ["audio"]}
    return small("whisper_tiny_en", "whisper", tasks=tasks, parameters=37_760_640, **facts)


def bge_m3(**facts: Any) -> dict[str, Any]:
    """All three outputs of bge-m3's layout, of random weights."""
    dims = {"dims": 48, "sparse_dims": 1000, "token_dims": 32}
    encode = dims | {"outputs": ["dense", "sparse", "multivector"]}
    return small(
        "bge_m3",
        "bge_m3",
        max_length=96,
        tasks={"encode": encode, "score": {"scale": "similarity"}},
        inputs=["text", "multivector"],
        **facts,
    )
