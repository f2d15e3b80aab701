"""From a repository's config files to a spec: which family serves a model that no YAML names, and with which facts.

Pure: nothing is fetched, and no library of models is asked. What no family serves is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from catalog.repository import Repository
from catalog.schema import Spec

Facts = dict[str, Any]
"""Fields of a Spec, as a YAML would have them."""

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
_PAGES = ("ColPaliForRetrieval", "ColQwen2ForRetrieval", "ColModernVBertForRetrieval")
_KNOWN = ("sentence_transformers.", "pylate.models.Dense.")
"""Modules that sentence-transformers has itself, under its own names or another library's."""
_FAMILY_CONFIGS = {"gliner_config.json": "gliner", "glirel_config.json": "glirel"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no family serves a model, as the end of a sentence that begins with its name."""

    reason: str


def resolve(name: str, repository: Repository, source: Mapping[str, Any]) -> Spec | Refusal:
    """The spec of a model by its config files. `source` says where its files are, as a YAML would."""
    try:
        found = _family(repository)
        if isinstance(found, Refusal):
            return found
        needs = _needs(repository)
        if isinstance(needs, Refusal):
            return needs
        parameters = repository.count_parameters()
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        # Anybody can put anything into these files.
        return Refusal(f"has config files that hold something else than they should ({type(error).__name__})")
    try:
        return Spec.model_validate(
            {
                "description": "Found by its config files; nobody has written a YAML for it.",
                "licence": repository.licence,
                "parameters": parameters,
                **found,
                "id": name,
                "source": {**source, "needs": needs},
            }
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return Refusal(f"has config files that do not fit together: {field}: {first['msg'].lower()}")


def _family(repository: Repository) -> Facts | Refusal:
    for file, family in _FAMILY_CONFIGS.items():
        if file in repository.files:
            return _by_labels(family, repository)
    config = repository.mapping("config.json")
    if "modules.json" in repository.files:
        return _by_modules(repository)
    if not config:
        if "adapter_config.json" in repository.files:
            base = str(repository.mapping("adapter_config.json").get("base_model_name_or_path", "its base model"))
            return Refusal(f"is an adapter, not a model: name it under 'loras' in a YAML of {base[:200]}")
        if repository.ending(".gguf"):
            return Refusal("has GGUF files only; which of them is meant has to be said in a YAML")
        return Refusal("has no config.json, so nothing says what it is")
    if config.get("model_type") == "extractor":
        return _by_labels("gliner2", repository)
    architectures = [str(name) for name in config.get("architectures") or ()]
    if not architectures:
        return Refusal("names no architecture in its config.json")
    for architecture in architectures:
        facts = _by_architecture(architecture, repository)
        if facts is not None:
            return facts
    return Refusal(f"is a {architectures[0][:100]}, which no family serves")


def _needs(repository: Repository) -> list[Literal["code", "pickle"]] | Refusal:
    """What an operator has to allow it: code that its configs map classes to, and pickles where there is no other."""
    needs: list[Literal["code", "pickle"]] = []
    config = repository.mapping("config.json")
    modules = repository.configs.get("modules.json")
    own = [
        str(entry.get("type", ""))
        for entry in (modules if isinstance(modules, Sequence) else ())
        if isinstance(entry, Mapping)
    ]
    if config.get("auto_map") or any(not kind.startswith(_KNOWN) for kind in own):
        needs.append("code")
    if not repository.ending(".safetensors"):
        if not repository.ending(".bin"):
            return Refusal("has no weights in safetensors, nor in a pickle")
        needs.append("pickle")
    return needs


def _by_labels(family: str, repository: Repository) -> Facts:
    """Families whose models take any label, and whose configs say little more than a length."""
    kinds = {
        "gliner": ["entities"],
        "glirel": ["relations"],
        "gliner2": ["entities", "classifications", "structure", "relations"],
        "gliclass": ["classifications"],
    }[family]
    facts: Facts = {
        "family": family,
        "tasks": {"extract": {"kinds": kinds}},
        "max_length": _length(repository, 512),
    }
    if family == "glirel":
        facts["inputs"] = ["text", "entities"]
    return facts


def _by_modules(repository: Repository) -> Facts | Refusal:
    """The layouts of sentence-transformers: a transformer and what comes after it."""
    entries = repository.configs.get("modules.json")
    if not isinstance(entries, Sequence) or not all(isinstance(entry, Mapping) for entry in entries) or not entries:
        return Refusal("has a modules.json that lists no modules")
    kinds = [str(entry.get("type", "")).rsplit(".", 1)[-1] for entry in entries]
    paths = [str(entry.get("path", "")) for entry in entries]
    library = repository.mapping("config_sentence_transformers.json")
    model_type = str(library.get("model_type") or "")
    prompts = {name: text for name, text in (library.get("prompts") or {}).items() if isinstance(text, str) and text}
    first = repository.mapping(f"{paths[0]}/config.json" if paths[0] else "config.json")
    length = _length(repository, 512, config=first)
    if model_type == "CrossEncoder":
        return _by_head(repository, first)
    if "SpladePooling" in kinds or model_type == "SparseEncoder":
        size = first.get("vocab_size")
        facts = {"outputs": ["sparse"], "sparse_dims": size, "prompts": prompts}
        return {"family": "sparse_encoder", "tasks": {"encode": facts}, "max_length": length}
    config = next(
        (repository.mapping(f"{p}/config.json") for p, k in zip(paths, kinds, strict=True) if k == "Dense"), {}
    )
    if model_type in ("ColBERT", "MultiVectorEncoder") or (config and "Pooling" not in kinds):
        facts = {"outputs": ["multivector"], "token_dims": config.get("out_features")}
        return {
            "family": "late_interaction",
            "tasks": {"encode": facts, "score": {"scale": "similarity"}},
            "inputs": ["text", "multivector"],
            "max_length": length,
        }
    if kinds[0] != "Transformer":
        return Refusal(f"begins with a module {kinds[0][:100]!r}, which no family serves")
    width = first.get("hidden_size") or first.get("d_model") or first.get("dim")
    for path, kind in zip(paths, kinds, strict=True):
        settings = repository.mapping(f"{path}/config.json")
        if kind == "Pooling":
            width = settings.get("embedding_dimension") or settings.get("word_embedding_dimension") or width
        elif kind == "Dense":
            width = settings.get("out_features") or width
    return {
        "family": "sentence_transformer",
        "tasks": {"encode": {"dims": width or 0, "prompts": prompts}},
        "max_length": length,
    }


def _by_architecture(architecture: str, repository: Repository) -> Facts | None:
    config = repository.mapping("config.json")
    if architecture in _EXACT:
        return _EXACT[architecture](repository, config)
    if architecture in _PAGES:
        width = config.get("embedding_dim") or 128
        tasks = {"encode": {"outputs": ["multivector"], "token_dims": width}, "score": {"scale": "similarity"}}
        return {
            "family": "page_images",
            "tasks": tasks,
            "max_length": _length(repository, 2048),
            "inputs": ["text", "image"],
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
    if architecture.endswith("ForTokenClassification"):
        return _classifier(repository, "token_classifier", "entities", _names(config))
    if architecture.endswith("ForSequenceClassification"):
        return _by_head(repository, config)
    if architecture.endswith("ForCausalLM"):
        return {**_generator(repository, config), "family": "causal_lm", "inputs": ["text", "messages"]}
    return None


def _by_head(repository: Repository, config: Mapping[str, Any]) -> Facts:
    """A sequence classifier by its labels: one scores pairs, entailment judges labels of the caller's own."""
    labels = _labels(config)
    if len(labels) == 1 or (not labels and config.get("num_labels") == 1):
        scale = "logit" if "Identity" in str(config.get("sentence_transformers") or "") else "probability"
        return {
            "family": "cross_encoder",
            "tasks": {"score": {"scale": scale}},
            "max_length": _length(repository, 512),
        }
    if any(label.lower() == "entailment" for label in labels):
        return _classifier(repository, "zero_shot_nli", "classifications", [])
    return _classifier(repository, "sequence_classifier", "classifications", labels)


def _classifier(repository: Repository, family: str, kind: str, labels: Sequence[str]) -> Facts:
    facts = {"kinds": [kind], "labels": list(labels)}
    return {"family": family, "tasks": {"extract": facts}, "max_length": _length(repository, 512)}


def _generator(repository: Repository, config: Mapping[str, Any]) -> Facts:
    tokenizer = repository.mapping("tokenizer_config.json")
    chat = "chat_template" in tokenizer or any(name.startswith("chat_template") for name in repository.files)
    facts: Facts = {
        "tasks": {"generate": {"chat": chat, "tools": "tools" in str(tokenizer.get("chat_template", ""))}},
        "max_length": _length(repository, 2048, config=config),
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
        "max_length": _length(repository, 512),
    }


def _detector(family: str, length: int, patches: int) -> Callable[[Repository, Mapping[str, Any]], Facts]:
    return lambda repository, config: {
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
        "max_length": 14_400,
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
    "GroundingDinoForObjectDetection": _detector("grounding_dino", 256, 900),
    "Owlv2ForObjectDetection": _detector("owlv2", 16, 3600),
    "Florence2ForConditionalGeneration": _reader("florence2", 1024, 577, ["text", "objects"]),
    "VisionEncoderDecoderModel": _donut,
    "GLiClassModel": lambda repository, config: _by_labels("gliclass", repository),
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


def _length(repository: Repository, usual: int, *, config: Mapping[str, Any] | None = None) -> int:
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
