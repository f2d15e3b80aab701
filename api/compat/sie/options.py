"""The peer's options as ours: renamed, read as the model's profile, or refused with the reason. Pure.

What has our name is passed on, and checked where all options are. So an unknown name, which the peer would ignore, is
refused there with the nearest valid one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from api.compat.sie.arrays import number
from catalog.errors import InvalidOption
from catalog.loader import DEFAULT
from catalog.options import OutputDtype
from catalog.terms import Verb
from tasks.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Given:
    """A request's model with its profile, its options in native form, and how errors name these in the body."""

    model: str
    options: dict[str, Any]
    names: dict[str, str]


def given(verb: Verb, model: str, body: Mapping[str, Any], *, inside: str = "", own: Mapping[str, str]) -> Given:
    """The model and the options of a body, or of the map `inside` it.

    `own` maps fields that stand beside `options` to native options. Raises InvalidOption or InvalidRequest.
    """
    holder = (body.get(inside) if inside else body) or {}
    where = f"{inside}.options" if inside else "options"
    sent = holder.get("options")
    if sent is not None and not isinstance(sent, dict):
        raise InvalidRequest(f"{where!r} must be an object.", param=where)
    found: dict[str, Any] = {}
    names = {"verb": "model", "options": where}
    for field, option in own.items():
        if (value := holder.get(field)) is not None:
            place = f"{inside}.{field}" if inside else field
            name, meant = _meant(verb, option, number(value), place)
            found[name] = meant
            names[f"options.{name}"] = place
    for name, value in (sent or {}).items():
        if value is None or name == "profile":
            continue
        place = f"{where}.{str(name)[:100]}"
        translated = _translated(verb, str(name), number(value), place)
        if translated is None:
            continue
        option, meant = translated
        if option in found:
            raise InvalidOption(f"{place!r} is given twice: {names[f'options.{option}']!r} says it, too.", param=place)
        found[option] = meant
        names[f"options.{option}"] = place
    return Given(_profiled(model, (sent or {}).get("profile"), f"{where}.profile"), found, names)


def _profiled(model: str, profile: object, where: str) -> str:
    """The model's name with its profile, which the path and the options may both say."""
    if "/" not in model:
        model = model.replace("__", "/", 1)
    if profile is None:
        return model
    if not isinstance(profile, str) or not profile:
        raise InvalidOption(f"{where!r} must be the name of a profile.", param=where)
    name, _, said = model.partition(":")
    if said and said != profile:
        message = f"The path names the profile {said[:60]!r} and {where!r} {profile[:60]!r}; name one."
        raise InvalidOption(message, param=where)
    return name if profile == DEFAULT else f"{name}:{profile}"


def _translated(verb: Verb, name: str, value: Any, where: str) -> tuple[str, Any] | None:
    """The native option and its value; None for an option of the peer that is switched off and not here anyway."""
    if (why := _ABSENT.get((verb, name)) or _ABSENT_EVERYWHERE.get(name)) is not None:
        if value is False:
            return None
        raise InvalidOption(f"Option {name!r} is not taken: {why}.", param=where)
    return _meant(verb, name, value, where)


def _meant(verb: Verb, name: str, value: Any, where: str) -> tuple[str, Any]:
    meaning = _MEANINGS.get((verb, name))
    return (name, value) if meaning is None else (meaning[0], meaning[1](value, where))


def _same(value: Any, where: str) -> Any:
    return value


def _word(words: Mapping[str, Any]) -> Callable[[Any, str], Any]:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, str) or value not in words:
            raise InvalidOption(f"{where!r} must be {' or '.join(map(repr, words))}.", param=where)
        return words[value]

    return read


_cuts = _word({"truncate": True, "error": False})
_score_mode = _word(
    {"dense": "dense", "sparse": "sparse", "colbert": "multivector", "hybrid": "all", "multivector": "multivector"}
    | {"all": "all"}
)
_HYBRID = {"dense": 0.4, "sparse": 0.2, "colbert": 0.4}
"""What the peer weighs those with that a caller does not name."""


def _weights(value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        return value
    for name in value:
        if name not in _HYBRID:
            message = f"{where!r} has the key {str(name)[:40]!r}; it takes: {', '.join(_HYBRID)}."
            raise InvalidOption(message, param=where)
    return [number(value.get(name, weight)) for name, weight in _HYBRID.items()]


def _granularity(value: Any, where: str) -> str:
    if not isinstance(value, list) or not value or not all(one in ("segment", "word") for one in value):
        raise InvalidOption(f"{where!r} must be a list of 'segment' and 'word'.", param=where)
    return "word" if "word" in value else "segment"


def _dtype(value: Any, where: str) -> Any:
    """The peer's bits are unsigned, which the native API calls `ubinary`."""
    return OutputDtype.UBINARY.value if value == OutputDtype.BINARY else value


_MEANINGS: Mapping[tuple[Verb, str], tuple[str, Callable[[Any, str], Any]]] = {
    (Verb.ENCODE, "output_dtype"): ("output_dtype", _dtype),
    (Verb.ENCODE, "overflow_policy"): ("truncate", _cuts),
    (Verb.SCORE, "overflow_policy"): ("truncate", _cuts),
    (Verb.SCORE, "score_mode"): ("score_mode", _score_mode),
    (Verb.SCORE, "score_weights"): ("score_weights", _weights),
    (Verb.EXTRACT, "timestamp_granularities"): ("timestamps", _granularity),
    (Verb.EXTRACT, "classification_type"): ("multi_label", _word({"single-label": False, "multi-label": True})),
    (Verb.GENERATE, "lora_id"): ("lora", _same),
    (Verb.GENERATE, "max_new_tokens"): ("max_tokens", _same),
}

_POOLED = "vectors are pooled as the model was trained"
_ABSENT_EVERYWHERE: Mapping[str, str] = {
    "max_seq_length": "a model reads up to its own length; shorten the text, or say 'overflow_policy'",
    "runtime": "a profile says how its model is run",
}
_NO_LORA = "adapters are for generate"
_ABSENT: Mapping[tuple[Verb, str], str] = {
    (Verb.ENCODE, "muvera"): "no fixed-size encoding is made of a multivector; ask for 'multivector' itself",
    (Verb.ENCODE, "smve"): "no fixed-size encoding is made of a multivector; ask for 'multivector' itself",
    (Verb.ENCODE, "pooling"): _POOLED,
    (Verb.ENCODE, "query_template"): "put the words before the text by 'instruction', or say 'is_query'",
    (Verb.ENCODE, "doc_template"): "put the words before the text by 'instruction'",
    (Verb.ENCODE, "lora_id"): _NO_LORA,
    (Verb.ENCODE, "lora"): _NO_LORA,
    (Verb.SCORE, "pooling"): _POOLED,
    (Verb.SCORE, "lora_id"): _NO_LORA,
    (Verb.EXTRACT, "lora_id"): _NO_LORA,
    (Verb.EXTRACT, "overflow_policy"): "a long text is read in windows, all of it",
    (Verb.EXTRACT, "label_groups"): "labels are one group; make a call for each",
    (Verb.EXTRACT, "prune_threshold"): "no model here prunes",
    (Verb.EXTRACT, "highlight_threshold"): "no model here highlights",
}
"""What the peer has and this service does not, each with what to do instead."""
