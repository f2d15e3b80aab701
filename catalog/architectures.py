"""Which family serves a model of an architecture, and the facts that its configs give. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from catalog.heads import SCALES, activation_path, reads_text_alone
from catalog.repository import Repository

Facts = dict[str, Any]
"""Fields of a Spec, as a YAML would have them."""


class Unserved(Exception):
    """Why no family serves a model of a known kind, as the end of a sentence that begins with its name."""


_ENDLESS = 10**9
"""Tokenizers without a limit say a number beyond any other."""

_VISION_LANGUAGE = (
    "Gemma3ForConditionalGeneration",
    "Idefics3ForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
)
_PAGES = ("ColPaliForRetrieval", "ColQwen2ForRetrieval")


def by_architecture(architecture: str, repository: Repository) -> Facts | None:
    """The facts of a model of this class; None if no family serves it."""
    config = repository.mapping("config.json")
    if architecture in _EXACT:
        return _EXACT[architecture](repository, config)
    if architecture in _PAGES:
        width = config.get("embedding_dim") or 128
        tasks = {"encode": {"outputs": ["multivector"], "token_dims": width}, "score": {"scale": "similarity"}}
        return {
            "family": "page_images",
            "tasks": tasks,
            "max_length": length_of(repository, 2048),
            "inputs": ["text", "image", "multivector"],
            "image_length": 1024,
        }
    if architecture in _VISION_LANGUAGE:
        facts = _generator(repository, config.get("text_config") or config)
        return {
            **facts,
            "family": "vision_language",
            "inputs": ["text", "messages", "image"],
            "image_length": 1024,
        }
    if architecture.endswith(("ForTokenClassification", "ForSequenceClassification")) and not reads_text_alone(config):
        return None
    if architecture.endswith("ForTokenClassification"):
        return _classifier(repository, "token_classifier", "entities", _names(config))
    if architecture.endswith("ForSequenceClassification"):
        return by_head(repository, config)
    if architecture.endswith("ForCausalLM"):
        return {**_generator(repository, config), "family": "causal_lm", "inputs": ["text", "messages"]}
    return None


def by_head(repository: Repository, config: Mapping[str, Any]) -> Facts:
    """A sequence classifier by its labels: one scores pairs, entailment judges labels of the caller's own."""
    labels = _labels(config)
    if len(labels) == 1 or (not labels and config.get("num_labels") == 1):
        path = activation_path(repository.mapping("config_sentence_transformers.json"), config)
        scale = SCALES.get(path.rsplit(".", 1)[-1])
        if scale is None or not path.startswith("torch.nn."):
            raise Unserved(f"gives its scores by {path[:200]!r}: what they mean has to be said in a YAML")
        return {
            "family": "cross_encoder",
            "tasks": {"score": {"scale": scale}},
            "max_length": length_of(repository, 512),
        }
    if any(label.lower() == "entailment" for label in labels):
        return _classifier(repository, "zero_shot_nli", "classifications", [])
    return _classifier(repository, "sequence_classifier", "classifications", labels)


def by_labels(family: str, repository: Repository) -> Facts:
    """Families whose models take any label, and whose configs say little more than a length."""
    kinds = {
        "gliner": ["entities"],
        "glirel": ["relations"],
        "gliner2": ["entities", "classifications", "structure", "relations"],
        "gliclass": ["classifications"],
    }[family]
    config = repository.mapping("gliner_config.json")
    if family == "gliner" and config.get("relations_layer") is not None:
        kinds = ["entities", "relations"]
    if family == "gliner" and (config.get("labels_decoder") or config.get("model_type") == "gliner_streaming_span"):
        raise Unserved("is a GLiNER that generates its labels or reads streams, which no family serves")
    facts: Facts = {
        "family": family,
        "tasks": {"extract": {"kinds": kinds}},
        "max_length": length_of(repository, 512),
    }
    if family == "glirel":
        facts["inputs"] = ["text", "entities"]
    return facts


def _classifier(repository: Repository, family: str, kind: str, labels: Sequence[str]) -> Facts:
    facts = {"kinds": [kind], "labels": list(labels)}
    return {"family": family, "tasks": {"extract": facts}, "max_length": length_of(repository, 512)}


def _generator(repository: Repository, config: Mapping[str, Any]) -> Facts:
    tokenizer = repository.mapping("tokenizer_config.json")
    chat = "chat_template" in tokenizer or any(name.startswith("chat_template") for name in repository.files)
    facts: Facts = {
        "tasks": {"generate": {"chat": chat, "tools": "tools" in str(tokenizer.get("chat_template", ""))}},
        "max_length": length_of(repository, 2048, config=config),
    }
    kind = str(config.get("dtype") or config.get("torch_dtype") or repository.mapping("config.json").get("dtype") or "")
    if kind in ("float16", "bfloat16"):
        facts["load"] = {"dtype": kind}
    return facts


def _pairs(repository: Repository, config: Mapping[str, Any]) -> Facts:
    """Text and images in one space."""
    text, vision = config.get("text_config") or {}, config.get("vision_config") or {}
    width = config.get("projection_dim") or text.get("projection_size") or vision.get("hidden_size") or 768
    side = int(vision.get("image_size", 224)) // int(vision.get("patch_size", 16))
    return {
        "family": "vision_text",
        "tasks": {"encode": {"dims": width}},
        "max_length": int(text.get("max_position_embeddings") or (77 if config.get("model_type") == "clip" else 64)),
        "inputs": ["text", "image"],
        "image_length": max(1, side * side),
    }


def _colbert(repository: Repository, config: Mapping[str, Any]) -> Facts:
    """The layout of the first ColBERT: what its projection gives is said beside the config."""
    return {
        "family": "late_interaction",
        "tasks": {
            "encode": {"outputs": ["multivector"], "token_dims": repository.mapping("artifact.metadata").get("dim")},
            "score": {"scale": "similarity"},
        },
        "inputs": ["text", "multivector"],
        "max_length": length_of(repository, 512),
    }


def _dino(repository: Repository, config: Mapping[str, Any]) -> Facts:
    return _detector("grounding_dino", 256, 900)


def _owl(repository: Repository, config: Mapping[str, Any]) -> Facts:
    """OWLv2 and OWL-ViT: each square of an image is a place where something may be."""
    text, vision = config.get("text_config") or {}, config.get("vision_config") or {}
    first = config.get("model_type") == "owlvit"
    side = int(vision.get("image_size") or (768 if first else 960)) // int(
        vision.get("patch_size") or (32 if first else 16)
    )
    return _detector("owlv2", int(text.get("max_position_embeddings") or 16), max(1, side * side))


def _detector(family: str, length: int, patches: int) -> Facts:
    return {
        "family": family,
        "tasks": {"extract": {"kinds": ["objects"]}},
        "max_length": length,
        "inputs": ["image"],
        "image_length": patches,
    }


def _reader(family: str, length: int, patches: int, kinds: Sequence[str]) -> Callable[..., Facts]:
    return lambda repository, config: {
        "family": family,
        "tasks": {"extract": {"kinds": list(kinds)}},
        "max_length": length,
        "inputs": ["image", "text"],
        "image_length": patches,
    }


def _speech(repository: Repository, config: Mapping[str, Any]) -> Facts:
    return {
        "family": "whisper",
        "tasks": {"extract": {"kinds": ["transcript"]}},
        "max_length": 7_200,
        "unit": "seconds",
        "inputs": ["audio"],
    }


def _donut(repository: Repository, config: Mapping[str, Any]) -> Facts | None:
    if (config.get("encoder") or {}).get("model_type") != "donut-swin":
        return None
    length = int((config.get("decoder") or {}).get("max_position_embeddings") or 768)
    return _reader("donut", length, 1200, ["text"])(repository, config)


_EXACT: Mapping[str, Callable[[Repository, Mapping[str, Any]], Facts | None]] = {
    "HF_ColBERT": _colbert,
    "CLIPModel": _pairs,
    "SiglipModel": _pairs,
    "Siglip2Model": _pairs,
    "WhisperForConditionalGeneration": _speech,
    "GroundingDinoForObjectDetection": _dino,
    "MMGroundingDinoForObjectDetection": _dino,
    "Owlv2ForObjectDetection": _owl,
    "OwlViTForObjectDetection": _owl,
    "Florence2ForConditionalGeneration": _reader("florence2", 1024, 577, ["text", "objects"]),
    "VisionEncoderDecoderModel": _donut,
    "GLiClassModel": lambda repository, config: by_labels("gliclass", repository),
}


def _labels(config: Mapping[str, Any]) -> list[str]:
    """The labels of a head, in their order."""
    names = config.get("id2label")
    if not isinstance(names, Mapping):
        return []
    return [str(names[key]) for key in sorted(names, key=lambda key: int(key) if str(key).isdigit() else 0)]


def _names(config: Mapping[str, Any]) -> list[str]:
    """What a tagger finds: its labels without their place in an entity, each once."""
    plain = (label[2:] if label[:2] in ("B-", "I-", "E-", "S-", "L-", "U-") else label for label in _labels(config))
    return [label for label in dict.fromkeys(plain) if label != "O"]


def length_of(repository: Repository, usual: int, *, config: Mapping[str, Any] | None = None) -> int:
    """How many tokens it reads: the least of what its configs say."""
    config = repository.mapping("config.json") if config is None else config
    positions = config.get("max_position_embeddings")
    padded = str(config.get("model_type", "")) in ("roberta", "xlm-roberta", "camembert", "mpnet")
    limits = [
        repository.mapping("sentence_bert_config.json").get("max_seq_length"),
        repository.mapping("tokenizer_config.json").get("model_max_length"),
        # These number their places from behind the padding.
        positions - 2 if padded and isinstance(positions, int) else positions,
    ]
    told = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit < _ENDLESS]
    return min(told, default=usual)
