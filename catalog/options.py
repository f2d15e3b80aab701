"""Run-time options of each verb, as a caller may send them. Unknown names are refused with the nearest valid one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from catalog.errors import InvalidOption, nearest
from catalog.schema import Spec
from catalog.terms import Verb


class OutputDtype(StrEnum):
    """How vectors are written. Integers and bits follow `engine.outputs`; see docs/api.md for the formulas."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    UINT8 = "uint8"
    BINARY = "binary"
    UBINARY = "ubinary"


def _word(value: object) -> object:
    """An enum prints what it does not know, however long or deep that is; so what is no string ends here."""
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    return value


Word = BeforeValidator(_word)
"""Put it on a field of an enum that callers send."""


class EncodeOptions(BaseModel):
    """Options of `encode`.

    `prompt` names one of the model's own prompts; `instruction` is free text put before each text; only one of them may
    be given. `truncate=false` refuses a text longer than the model reads instead of cutting it. `dimensions` asks for a
    shorter (Matryoshka) vector.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    normalize: bool = True
    truncate: bool = True
    dimensions: int | None = None
    output_dtype: Annotated[OutputDtype, Field(strict=False), Word] = OutputDtype.FLOAT32
    prompt: Annotated[str, Field(max_length=200)] | None = None
    instruction: Annotated[str, Field(max_length=10_000)] | None = None


_BY_VERB: dict[str, type[BaseModel]] = {Verb.ENCODE: EncodeOptions}


def parse_options(spec: Spec, verb: Verb, run: Mapping[str, Any], sent: Mapping[str, Any]) -> BaseModel:
    """The validated options of a request: the profile's run-time defaults overlaid with what the caller sent.

    Raises InvalidOption naming the field, what is valid and, for an unknown name, the nearest valid one.
    """
    check_names(verb, sent)
    try:
        options = _BY_VERB[verb].model_validate({**run, **sent})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidOption(f"Option {where!r}: {first['msg']}.", param=f"options.{where}") from error
    if isinstance(options, EncodeOptions):
        _check_encode(spec, options)
    return options


def check_names(verb: str, sent: Mapping[str, Any]) -> None:
    """Refuse the first unknown name, whatever the values are. A verb without options of its own passes.

    Costs nothing however many names were sent. Raises InvalidOption.
    """
    if verb not in _BY_VERB:
        return
    valid = list(_BY_VERB[verb].model_fields)
    unknown = next((name for name in sent if name not in valid), None)
    if unknown is None:
        return
    hint = nearest(unknown, valid, 1)
    advice = f"did you mean {hint[0]!r}?" if hint else f"valid options: {', '.join(valid)}."
    raise InvalidOption(f"Unknown option {unknown[:100]!r} for {verb}; {advice}", param=f"options.{unknown[:100]}")


def _check_encode(spec: Spec, options: EncodeOptions) -> None:
    facts = spec.tasks.encode
    assert facts is not None, "the verb was checked before its options"
    if options.prompt is not None and options.instruction is not None:
        raise InvalidOption("Give either 'prompt' or 'instruction', not both.", param="options.prompt")
    if options.prompt is not None and options.prompt not in facts.prompts:
        names = ", ".join(sorted(facts.prompts)) or "none"
        raise InvalidOption(
            f"Model {spec.id!r} has no prompt {options.prompt!r}; it has: {names}.", param="options.prompt"
        )
    allowed = sorted({facts.dims, *facts.matryoshka})
    if options.dimensions is not None and options.dimensions not in allowed:
        raise InvalidOption(
            f"Model {spec.id!r} gives {' or '.join(map(str, allowed))} dimensions, not {options.dimensions}.",
            param="options.dimensions",
        )
