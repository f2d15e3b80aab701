"""How tokens are chosen and told, in the words that OpenAI's chat and completions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgpack
from pydantic import Discriminator, Field, Tag, model_validator

from api.compat.openai.texts import form_of
from api.schemas import Reply
from catalog.options.generate import MOST_STOPS, Biases
from catalog.options.words import Fraction
from tasks.errors import LimitExceeded
from tasks.items import Strict, fault

MAX_CHOICES = 128

MOST_COPIED_BYTES = 32 * 2**20
"""All choices' prompts together."""

TEMPERATURE = 1.0
"""OpenAI's default. The native API's is 0, the likeliest token each time."""

_Penalty = Annotated[Fraction, Field(ge=-2, le=2)]
_Text = Annotated[str, Field(min_length=1, max_length=500)]
_Stop = Annotated[
    Annotated[_Text, Tag("(text)")] | Annotated[list[_Text], Field(max_length=MOST_STOPS), Tag("(list)")],
    Discriminator(form_of, custom_error_type="form", custom_error_message="must be a text or a list of texts"),
]


class StreamOptions(Strict):
    """What a stream tells besides the text."""

    include_usage: Annotated[bool, Field(description="One more chunk with the usage, before the end")] = False
    include_obfuscation: Annotated[bool, Field(description="Taken and not needed: nothing is padded")] = False


class Sampling(Strict):
    """Fields that choose tokens. Those that OpenAI does not have are extras of this service."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    temperature: Annotated[Fraction, Field(ge=0, le=2, description=f"{TEMPERATURE:g} if left out")] | None = None
    top_p: Annotated[Fraction, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63, description="Makes a sample repeatable")] | None = None
    stop: _Stop | None = None
    frequency_penalty: _Penalty | None = None
    presence_penalty: _Penalty | None = None
    logit_bias: Biases | None = None
    top_k: Annotated[int, Field(ge=1, description="An extra: sample among so many of the likeliest")] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=1_000_000, description="An extra: no end before so many")] | None = None
    repetition_penalty: Annotated[Fraction, Field(gt=0, le=10, description="An extra")] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES, description="How many choices")] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str | None, Field(description="Taken, and kept nowhere")] = None

    @model_validator(mode="after")
    def _streams(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise fault("is for a stream; set 'stream'", "stream_options")
        return self

    @property
    def choices(self) -> int:
        """How many texts are wanted of each prompt."""
        return self.n or 1

    @property
    def tells_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class Usage(Reply):
    """Tokens that were read and made."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


_OPTIONS = (
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "top_k",
    "min_tokens",
    "repetition_penalty",
)
"""The fields that are options of `generate` under the same name."""


def check_copies(prompts: object, choices: int) -> None:
    """Raise LimitExceeded where so many copies of the prompts are too much: each choice has one of its own."""
    if choices > 1 and (size := len(msgpack.packb(prompts))) * choices > MOST_COPIED_BYTES:
        most = MOST_COPIED_BYTES // size
        message = f"'n' repeats {size} bytes of prompts; of such there may be {max(1, most)}."
        raise LimitExceeded(message, param="n")


def options_of(asked: Sampling) -> dict[str, Any]:
    """The options of `generate`; their errors name the fields under `{"options": ""}`."""
    given = {name: value for name in _OPTIONS if (value := getattr(asked, name)) is not None}
    return {"temperature": TEMPERATURE, **given}


def usage_of(usage: Mapping[str, int] | None, choices: int = 1) -> dict[str, int]:
    """OpenAI's usage from a job's, which has each prompt once for each of its choices; OpenAI counts it once."""
    found = usage or {}
    prompt, completion = found.get("prompt_tokens", 0) // choices, found.get("completion_tokens", 0)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
