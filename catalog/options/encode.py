"""Options of `encode`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from catalog.errors import InvalidOption
from catalog.options.words import Instruction, Options, Word
from catalog.schema import EncodeFacts, Spec


class OutputDtype(StrEnum):
    """How vectors are written. Integers and bits follow `engine.outputs`; see docs/api.md for the formulas."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
    UINT8 = "uint8"
    BINARY = "binary"
    UBINARY = "ubinary"


_DTYPES = {"sparse": ("float32", "float16"), "multivector": ("float32", "float16", "int8")}
"""How vectors that are not dense may be written; see `engine.sparse` and `engine.multivectors`."""


class OutputType(StrEnum):
    """Which kinds of vectors a model can give of one input."""

    DENSE = "dense"
    SPARSE = "sparse"
    MULTIVECTOR = "multivector"


class EncodeOptions(Options):
    """Options of `encode`.

    `output_types` chooses among what the model gives; left out, it is the first of them. `prompt` names one of the
    model's own prompts. `is_query` says which side of a search an item is on: the model's prompt for queries or the one
    for documents is put before it, where it has such. `instruction` is free text put before each text in place of
    either. `truncate=false` refuses a text longer than the model reads instead of cutting it. `dimensions` asks for a
    shorter (Matryoshka) vector. `normalize` and `dimensions` are for dense vectors, and so are the integers and bits of
    `output_dtype`, but for the int8 of a multivector.
    """

    normalize: bool = True
    truncate: bool = True
    dimensions: int | None = None
    output_types: Annotated[
        list[Annotated[OutputType, Field(strict=False), Word]] | None, Field(min_length=1, max_length=3)
    ] = None
    output_dtype: Annotated[OutputDtype, Field(strict=False), Word] = OutputDtype.FLOAT32
    prompt: Annotated[str, Field(max_length=200)] | None = None
    is_query: bool = False
    instruction: Instruction | None = None

    def outputs(self, facts: EncodeFacts) -> tuple[str, ...]:
        """The kinds of vectors to give, in the model's own order, each once."""
        if self.output_types is None:
            return facts.outputs[:1]
        return tuple(output for output in facts.outputs if output in self.output_types)

    def prefix(self, facts: EncodeFacts) -> str:
        """What is put before each text: the instruction, the named prompt, or the model's own for this side."""
        if self.instruction is not None:
            return self.instruction
        if self.prompt is not None:
            return facts.prompts[self.prompt]
        return side_prompt(facts.prompts, is_query=self.is_query) or ""


def side_prompt(prompts: Mapping[str, str | None], *, is_query: bool) -> str | None:
    """The prompt for queries or for documents among a model's own, as sentence-transformers finds it; None without."""
    names = ("query",) if is_query else ("document", "passage", "corpus")
    return next((prompts[name] for name in names if prompts.get(name) is not None), None)


def check_encode(spec: Spec, options: EncodeOptions, sent: Collection[str] = ()) -> None:
    """Raise InvalidOption for what this model cannot do; `sent` are those that a caller named, not the YAML."""
    facts = spec.tasks.encode
    assert facts is not None, "the verb was checked before its options"
    if options.prompt is not None and options.instruction is not None:
        raise InvalidOption("Give either 'prompt' or 'instruction', not both.", param="options.prompt")
    if options.prompt is not None and options.is_query:
        raise InvalidOption("Give either 'prompt' or 'is_query', not both.", param="options.is_query")
    if options.prompt is not None and options.prompt not in facts.prompts:
        names = ", ".join(sorted(facts.prompts)) or "none"
        raise InvalidOption(
            f"Model {spec.id!r} has no prompt {options.prompt!r}; it has: {names}.", param="options.prompt"
        )
    for output in options.output_types or ():
        if output not in facts.outputs:
            raise InvalidOption(
                f"Model {spec.id!r} gives no {output} vectors; it gives: {', '.join(facts.outputs)}.",
                param="options.output_types",
            )
    _check_dimensions(spec, facts, options)
    if "normalize" in sent and not options.normalize and "dense" not in options.outputs(facts):
        raise InvalidOption("'normalize' is for dense vectors; ask for them.", param="options.normalize")
    for given in options.outputs(facts):
        if given in _DTYPES and options.output_dtype not in _DTYPES[given]:
            raise InvalidOption(
                f"A {given} vector is {' or '.join(_DTYPES[given])}, not {options.output_dtype.value}.",
                param="options.output_dtype",
            )


def _check_dimensions(spec: Spec, facts: EncodeFacts, options: EncodeOptions) -> None:
    if options.dimensions is None:
        return
    allowed = sorted({facts.dims, *facts.matryoshka} - {0})
    if "dense" not in options.outputs(facts):
        raise InvalidOption("'dimensions' is for dense vectors; ask for them.", param="options.dimensions")
    if options.dimensions not in allowed:
        raise InvalidOption(
            f"Model {spec.id!r} gives {' or '.join(map(str, allowed))} dimensions, not {options.dimensions}.",
            param="options.dimensions",
        )
