"""Options of `generate`."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from catalog.errors import InvalidOption, suggestion
from catalog.options.families import unkept
from catalog.options.words import Fraction, Options, Tree, at_most
from catalog.schema import Spec

MOST_STOPS = 16
MOST_BIASES = 1024
MOST_DIGITS = 9
"""Of a token's id: more than any vocabulary needs."""

LEAST_TEMPERATURE = 1e-6
"""Below it no draw could give anything but the likeliest token, and a division would leave what numbers can hold."""

Stop = Annotated[str, Field(min_length=1, max_length=500)]
Penalty = Annotated[Fraction, Field(ge=-2, le=2)]
Biases = Annotated[
    dict[str, Annotated[Fraction, Field(ge=-100, le=100)]], Field(max_length=MOST_BIASES), at_most(MOST_BIASES)
]


def _likeliest(temperature: float) -> float:
    return temperature if temperature >= LEAST_TEMPERATURE else 0.0


class Grammar(Options):
    """What the output is locked to, by one of: a JSON schema, a regular expression, a Lark grammar, a list of texts."""

    json_schema: Tree | bool | None = None
    regex: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    lark: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    choice: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=2000)]], Field(min_length=1, max_length=1000)]
        | None
    ) = None

    @model_validator(mode="after")
    def _only_one(self) -> Grammar:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of json_schema, regex, lark and choice")
        return self


class GenerateOptions(Options):
    """Options of `generate`.

    `max_tokens` is the most new ones; left out, what the model's catalog entry says. `temperature` 0 takes the
    likeliest token each time. `seed` makes a sample repeatable. `raw` feeds the text without the chat template.
    `grammar` locks the output; `lora` names one of the model's adapters. `stream` has the text told as it comes.
    """

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    temperature: Annotated[Fraction, Field(ge=0, le=2), AfterValidator(_likeliest)] = 0.0
    top_p: Annotated[Fraction, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: Annotated[Fraction, Field(gt=0, le=10)] = 1.0
    logit_bias: Biases | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
    grammar: Grammar | None = None
    raw: bool = False
    thinking: bool | None = None
    tools: Annotated[list[Tree], Field(max_length=128)] | None = None
    lora: Annotated[str, Field(max_length=200)] | None = None
    stream: bool = False

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end the output."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def seed_at(self, place: int) -> int | None:
        """The seed of the item at this place of its job: the first has the job's own, each other one of its own.

        So equal prompts in one job give different samples, and each of them the same one every time.
        """
        if self.seed is None or place == 0:
            return self.seed
        digest = blake2b(f"{self.seed} {place}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def most(self, spec: Spec) -> int:
        """How many new tokens there may be."""
        facts = spec.tasks.generate
        return self.max_tokens or (facts.max_new_tokens if facts is not None else 1)


def check_generate(spec: Spec, options: GenerateOptions, sent: Collection[str] = ()) -> None:
    """Raise InvalidOption for what this model cannot do; `sent` are those that a caller named, not the YAML.

    What a grammar holds is checked by `catalog.grammar`.
    """
    facts = spec.tasks.generate
    assert facts is not None, "the verb was checked before its options"
    if options.lora is not None and options.lora not in spec.loras:
        hint = suggestion(options.lora, spec.loras, f"; it has: {', '.join(sorted(spec.loras)) or 'none'}.")
        raise InvalidOption(f"Model {spec.id!r} has no LoRA {options.lora[:100]!r}{hint}", param="options.lora")
    if options.grammar is not None and not facts.grammar:
        raise InvalidOption(f"The output of {spec.id!r} cannot be locked to a grammar.", param="options.grammar")
    for name in sorted(unkept(spec.family)):
        if options.grammar is not None and getattr(options.grammar, name) is not None:
            kept = ", ".join(kind for kind in Grammar.model_fields if kind not in unkept(spec.family))
            message = f"Model {spec.id!r} keeps to no {name}; its grammars are: {kept}."
            raise InvalidOption(message, param=f"options.grammar.{name}")
    if options.tools and not facts.tools:
        raise InvalidOption(f"The chat template of {spec.id!r} takes no tools.", param="options.tools")
    for name in ("thinking", "tools"):
        if options.raw and name in sent and getattr(options, name) is not None:
            message = f"{name!r} is told by the chat template, which 'raw' leaves out; give one of them."
            raise InvalidOption(message, param=f"options.{name}")
    if options.top_logprobs and not options.logprobs:
        raise InvalidOption("'top_logprobs' needs 'logprobs: true'.", param="options.top_logprobs")
    if options.max_tokens is not None and options.max_tokens >= spec.max_length:
        message = f"Model {spec.id!r} keeps {spec.max_length} tokens in all, prompt included; ask for fewer."
        raise InvalidOption(message, param="options.max_tokens")
    if options.min_tokens > options.most(spec):
        raise InvalidOption("'min_tokens' is more than 'max_tokens'.", param="options.min_tokens")
    for token in options.logit_bias or {}:
        if not (token.isascii() and token.isdigit() and len(token) <= MOST_DIGITS):
            raise InvalidOption(
                f"'logit_bias' has the key {token[:40]!r}, which is no token id.", param="options.logit_bias"
            )
