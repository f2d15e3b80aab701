"""From a repository's config files to a spec: which family serves a model that no YAML names, and with which facts.

Pure: nothing is fetched, and no library of models is asked. What no family serves is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from catalog.architectures import Facts, Unserved, by_architecture, by_head, by_labels, length_of
from catalog.repository import Repository
from catalog.schema import Spec

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
    except Unserved as error:
        return Refusal(str(error))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return Refusal(f"has config files that do not fit together: {field}: {first['msg'].lower()}")
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        # Anybody can put anything into these files.
        return Refusal(f"has config files that hold something else than they should ({type(error).__name__})")


def _family(repository: Repository) -> Facts | Refusal:
    for file, family in _FAMILY_CONFIGS.items():
        if file in repository.files:
            return by_labels(family, repository)
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
        return by_labels("gliner2", repository)
    architectures = [str(name) for name in config.get("architectures") or ()]
    if not architectures:
        return Refusal("names no architecture in its config.json")
    for architecture in architectures:
        facts = by_architecture(architecture, repository)
        if facts is not None:
            return facts
    if architectures[0].endswith("ForMaskedLM"):
        said = "is a masked language model, and no modules.json says that it is a sparse encoder; a YAML can say so"
        return Refusal(said)
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


def _documents(repository: Repository) -> Mapping[str, Any]:
    """The config of what documents pass through first, where they and queries have ways of their own."""
    ways = repository.mapping("router_config.json").get("structure") or {}
    return repository.mapping(f"{ways['document'][0]}/config.json")


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
    length = length_of(repository, 512, config=first)
    if model_type == "CrossEncoder":
        return by_head(repository, first)
    if "SpladePooling" in kinds or model_type == "SparseEncoder":
        size = (_documents(repository) if kinds[0] == "Router" else first).get("vocab_size")
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
