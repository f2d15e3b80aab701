"""bge-m3's layout with random weights, against its formulas written down again on padded batches of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from catalog.schema import Spec
from catalog.terms import Verb
from tests.adapters.case import Answers, Case, Payload
from tests.small import folder

TEXTS = [
    "what floats?",
    "A ship, a boat. A raft! A ship again.",
    "Der Vertrag endet am 31. März.",
    "queue jobs for workers, " * 4,
    "jobs",
]


def model() -> tuple[Spec, Path | None]:
    made = {
        "id": "random/bge-m3",
        "family": "bge_m3",
        "source": {"path": str(folder("bge_m3"))},
        "tasks": {
            "encode": {
                "dims": 48,
                "token_dims": 32,
                "sparse_dims": 1000,
                "outputs": ["dense", "sparse", "multivector"],
            },
            "score": {"scale": "similarity"},
        },
        "parameters": 1,
        "max_length": 96,
        "inputs": ["text", "multivector"],
    }
    return Spec.model_validate(made), folder("bge_m3")


def items() -> list[Payload]:
    return [{"text": text} for text in TEXTS]


def pairs() -> list[Payload]:
    return [{"text": text, "query": {"text": query}} for query in ("ships", "which job?") for text in TEXTS[1:]]


class Formulas:
    """The model by its paper, one text at a time."""

    def __init__(self, files: Path | None, device: str) -> None:
        assert files is not None
        self.tokenizer = AutoTokenizer.from_pretrained(files)
        self.body = AutoModel.from_pretrained(files, add_pooling_layer=False).to(device).eval()
        self.heads = {name: load_file(files / f"{name}.safetensors") for name in ("sparse_linear", "colbert_linear")}

    @torch.inference_mode()
    def outputs(self, text: str) -> dict[str, Any]:
        sent = self.tokenizer(text, return_tensors="pt").to(self.body.device)
        states = self.body(**sent).last_hidden_state[0].cpu()
        sparse, colbert = self.heads["sparse_linear"], self.heads["colbert_linear"]
        weights: dict[int, float] = {}
        for index, weight in zip(
            sent["input_ids"][0].tolist(), (states @ sparse["weight"].T + sparse["bias"])[:, 0].tolist(), strict=True
        ):
            if weight > 0 and index not in self.tokenizer.all_special_ids:
                weights[index] = max(weights.get(index, 0.0), weight)
        vectors = states[1:] @ colbert["weight"].T + colbert["bias"]
        return {
            "dense": torch.nn.functional.normalize(states[0], dim=0).numpy(),
            "sparse": weights,
            "multivector": torch.nn.functional.normalize(vectors, dim=1).numpy(),
        }

    def scores(self, query: str, text: str) -> dict[str, float]:
        one, other = self.outputs(query), self.outputs(text)
        best = (one["multivector"] @ other["multivector"].T).max(axis=1)
        return {
            "dense": float(one["dense"] @ other["dense"]),
            "sparse": sum(weight * other["sparse"].get(index, 0.0) for index, weight in one["sparse"].items()),
            "multivector": float(best.mean()),
        }


def everything(folder: Path | None, device: str) -> Answers:
    formulas = Formulas(folder, device)

    def answers(items: Sequence[Payload]) -> list[Any]:
        return [formulas.outputs(item["text"]) for item in items]

    return answers


def weighted(weights: Mapping[str, float]) -> Any:
    def reference(folder: Path | None, device: str) -> Answers:
        formulas = Formulas(folder, device)

        def answers(items: Sequence[Payload]) -> list[Any]:
            found = [formulas.scores(item["query"]["text"], item["text"]) for item in items]
            total = sum(weights.values())
            return [{"score": sum(weights[mode] * one[mode] for mode in weights) / total} for one in found]

        return answers

    return reference


BAD: Sequence[Payload] = ({}, {"text": 7}, {"text": "half \ud83d pair"})
BAD_PAIRS: Sequence[Payload] = ({"text": "no query"}, {"query": {"text": "no text"}})
EQUAL = {"dense": 1.0, "sparse": 1.0, "multivector": 1.0}

CASES = [
    Case(
        "all-outputs",
        model,
        Verb.ENCODE,
        items,
        options={"output_types": ["dense", "sparse", "multivector"]},
        bad=BAD,
        reference=everything,
    ),
    Case("score", model, Verb.SCORE, pairs, bad=BAD_PAIRS, reference=weighted(EQUAL)),
    Case(
        "score-weighted",
        model,
        Verb.SCORE,
        pairs,
        options={"score_mode": "all", "score_weights": [0.4, 0.2, 0.4]},
        bad=BAD_PAIRS,
        reference=weighted({"dense": 0.4, "sparse": 0.2, "multivector": 0.4}),
    ),
    Case(
        "score-sparse",
        model,
        Verb.SCORE,
        pairs,
        options={"score_mode": "sparse"},
        bad=BAD_PAIRS,
        reference=weighted({"sparse": 1.0}),
    ),
]
