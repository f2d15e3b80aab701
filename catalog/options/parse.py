"""From what a caller sent to the options of a verb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from catalog.errors import InvalidOption, suggestion
from catalog.options.encode import EncodeOptions, check_encode
from catalog.options.extract import ExtractOptions, check_extract, extract_fields
from catalog.options.families import unread
from catalog.options.generate import GenerateOptions, check_generate
from catalog.options.score import ScoreOptions, check_score
from catalog.schema import Spec
from catalog.terms import Verb

_BY_VERB: dict[str, type[BaseModel]] = {
    Verb.ENCODE: EncodeOptions,
    Verb.SCORE: ScoreOptions,
    Verb.EXTRACT: ExtractOptions,
    Verb.GENERATE: GenerateOptions,
}


def parse_options(spec: Spec, verb: Verb, run: Mapping[str, Any], sent: Mapping[str, Any]) -> BaseModel:
    """The validated options of a request: the profile's run-time defaults overlaid with what the caller sent.

    Raises InvalidOption naming the field, what is valid and, for an unknown name, the nearest valid one.
    """
    _check_names(verb, sent, _taken(spec, verb), spec.id)
    try:
        options = _BY_VERB[verb].model_validate({**run_defaults(verb, run), **sent})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = _path(first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        raise InvalidOption(f"Option {where!r}: {said}.", param=f"options.{where}") from error
    match options:
        case EncodeOptions():
            check_encode(spec, options, sent)
        case ScoreOptions():
            check_score(spec, options)
        case ExtractOptions():
            check_extract(spec, options)
        case GenerateOptions():
            check_generate(spec, options, sent)
    return options


def option_names(spec: Spec, verb: Verb) -> list[str]:
    """The options that do something with this model, in the order of the verb's own."""
    encode, generate = spec.tasks.encode, spec.tasks.generate
    idle: set[str] = set()
    if verb is Verb.ENCODE and encode is not None:
        idle |= set() if encode.matryoshka else {"dimensions"}
        idle |= set() if encode.prompts else {"prompt"}
        idle |= set() if encode.prompts or encode.outputs == ("multivector",) else {"is_query"}
        idle |= set() if "dense" in encode.outputs else {"normalize", "dimensions"}
        idle |= set() if len(encode.outputs) > 1 else {"output_types"}
    if verb is Verb.SCORE and (encode is None or len(encode.outputs) < 2):
        idle |= {"score_mode", "score_weights"}
    if verb is Verb.GENERATE and generate is not None:
        idle |= set() if generate.grammar else {"grammar"}
        idle |= set() if generate.tools else {"tools"}
        idle |= set() if spec.loras else {"lora"}
    return [name for name in _taken(spec, verb) if name not in idle]


def _taken(spec: Spec, verb: Verb) -> list[str]:
    """The options that a caller may send to this model."""
    if verb is Verb.EXTRACT:
        return extract_fields(spec)
    idle = unread(spec.family, verb)
    return [name for name in _BY_VERB[verb].model_fields if name not in idle]


def run_defaults(verb: Verb, run: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a model's run-time defaults that are options of this verb: a model of several verbs has one set."""
    return {name: value for name, value in run.items() if name in _BY_VERB[verb].model_fields}


def check_names(verb: str, sent: Mapping[str, Any]) -> None:
    """Refuse the first name that no model of this verb takes, whatever the values are. An unknown verb passes.

    Costs nothing however many names were sent. Raises InvalidOption.
    """
    if verb in _BY_VERB:
        _check_names(verb, sent, list(_BY_VERB[verb].model_fields))


def _check_names(verb: str, sent: Mapping[str, Any], valid: Sequence[str], model: str = "") -> None:
    unknown = next((name for name in sent if name not in valid), None)
    if unknown is None:
        return
    if unknown in _BY_VERB[verb].model_fields:
        message = f"Model {model!r} does nothing with the option {unknown!r} for {verb}; it takes: {', '.join(valid)}."
        raise InvalidOption(message, param=f"options.{unknown}")
    hint = suggestion(unknown, valid, f"; valid options: {', '.join(valid)}.")
    raise InvalidOption(f"Unknown option {unknown[:100]!r} for {verb}{hint}", param=f"options.{unknown[:100]}")


def _path(location: Sequence[str | int]) -> str:
    """`("labels", 3)` as `labels[3]`. The branches of unions are in a location, too; they are no names of fields."""
    out = ""
    for part in location:
        if isinstance(part, int):
            out += f"[{part}]"
        elif part.isidentifier() and part not in _PLAIN:
            out += f".{part}" if out else part
    return out


_PLAIN = frozenset({"bool", "str", "int", "float"})
