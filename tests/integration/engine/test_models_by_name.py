"""A model that no YAML names, in a folder: what its configs lead to is a family that loads it as it was described."""

from __future__ import annotations

import pytest

from catalog.places import FolderPlace
from catalog.resolve import resolve
from catalog.schema import Spec
from engine.adapters.base import Adapter
from engine.families import adapter_class
from tests.small import folder

MODELS = {
    "bart_nli": "zero_shot_nli",
    "classifier": "sequence_classifier",
    "clip": "vision_text",
    "colbert": "late_interaction",
    "colpali": "page_images",
    "colqwen2": "page_images",
    "cross_encoder": "cross_encoder",
    "deberta_reranker": "cross_encoder",
    "donut": "donut",
    "flags": "sequence_classifier",
    "florence2": "florence2",
    "gemma_embedding": "sentence_transformer",
    "gliclass/average": "gliclass",
    "gliclass/first": "gliclass",
    "gliner/bi": "gliner",
    "gliner/bi_token": "gliner",
    "gliner/pickled": "gliner",
    "gliner/relex": "gliner",
    "gliner/span": "gliner",
    "gliner/token": "gliner",
    "gliner/token_spans": "gliner",
    "gliner2/boundary": "gliner2",
    "gliner2/span": "gliner2",
    "gliner_minilm": "gliner",
    "glirel/pickled": "glirel",
    "glirel/safe": "glirel",
    "grounding_dino": "grounding_dino",
    "inference_free": "sparse_encoder",
    "known_tagger": "token_classifier",
    "minilm_reranker": "cross_encoder",
    "mm_grounding_dino": "grounding_dino",
    "modernbert_reranker": "cross_encoder",
    "nli": "zero_shot_nli",
    "owlv2": "owlv2",
    "owlvit": "owlv2",
    "pylate": "late_interaction",
    "qwen3_embedding": "sentence_transformer",
    "qwen3_reranker_classifier": "cross_encoder",
    "siglip": "vision_text",
    "siglip2": "vision_text",
    "smollm2": "causal_lm",
    "tiny_gemma3": "causal_lm",
    "tiny_llava": "vision_language",
    "tiny_qwen3": "causal_lm",
    "tiny_qwen3_5": "causal_lm",
    "tiny_qwen3_5_vl": "vision_language",
    "tiny_qwen3_vl": "vision_language",
    "token_labels": "token_classifier",
    "whisper_tiny_en": "whisper",
    "xlm_roberta_reranker": "cross_encoder",
}


def resolved(small: str) -> Spec:
    name, _, part = small.partition("/")
    place = folder(name) / part
    there = FolderPlace(place.parent).look(place.name, None)
    assert there is not None
    spec = resolve("small/model", there.repository, there.source)
    assert isinstance(spec, Spec), spec
    return spec


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(("small", "family"), MODELS.items())
def test_a_folder_is_of_the_family_that_loads_it(small: str, family: str) -> None:
    spec = resolved(small)
    assert spec.family == family
    name, _, part = small.partition("/")
    found: type[Adapter] = adapter_class(family)
    adapter = found(spec, found.options.model_validate(dict(spec.load)), folder(name) / part, "cpu")
    adapter.load()
    adapter.unload()
