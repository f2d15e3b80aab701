"""The shape of a model's YAML. Strict: an unknown key is an error that names it.

A spec says what a model is (facts) and how its family loads it. A profile is a named variant, addressed
`model:profile`, that overrides load-time or run-time options.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from catalog.terms import Verb

Dim = Annotated[int, Field(ge=1, le=65_536)]
MOST_COEFFICIENT = 1e7
Milliseconds = Annotated[float, Field(ge=0, le=MOST_COEFFICIENT, allow_inf_nan=False)]
"""At most some hours: what is more is a slip, and would stop the scheduler's clock."""
Unit = Literal["tokens", "pages", "tiles", "seconds"]
"""What an item's length counts: text tokens, pages of a document, tiles of an image, seconds of audio."""
InputKind = Literal["text", "messages", "image", "audio", "document", "multivector", "entities"]
"""What an item may hold; `messages` is a conversation, `multivector` the precomputed vectors of a text's tokens.

`entities` are pieces of the item's text that were found before, for models that say what is between them.
"""
OutputKind = Literal["dense", "sparse", "multivector"]
ProfileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PackageWeights(_Strict):
    """Weights that an installed Python package carries; found without importing it."""

    name: str
    path: str = ""


class Source(_Strict):
    """Where the files are. Tried in this order: `path`, the hub's cache, the hub, `package`.

    `needs` names what this model cannot be loaded without and what an operator must allow it: `code` that comes with
    it, `pickle` weights.
    """

    hub: str | None = None
    revision: str | None = None
    package: PackageWeights | None = None
    path: str | None = None
    needs: tuple[Literal["code", "pickle"], ...] = ()


class LoraSource(_Strict):
    """Where a LoRA adapter's files are, as for a model."""

    hub: str | None = None
    revision: str | None = None
    path: str | None = None


class EncodeFacts(_Strict):
    """What `encode` gives: dense vectors of `dims`, or of one of `matryoshka` when asked by `dimensions`.

    `token_dims` is the width of each vector of a multivector, `sparse_dims` the vocabulary of sparse ones. `outputs`
    lists all it can give, and a caller who does not choose gets the first.
    """

    dims: Annotated[int, Field(ge=0, le=65_536)] = 0
    token_dims: Dim | None = None
    sparse_dims: Annotated[int, Field(ge=1, le=4_000_000)] | None = None
    matryoshka: tuple[Dim, ...] = ()
    prompts: dict[str, str] = Field(default_factory=dict)
    outputs: Annotated[tuple[OutputKind, ...], Field(min_length=1)] = ("dense",)

    @model_validator(mode="after")
    def _matryoshka_is_shorter(self) -> EncodeFacts:
        longest = max(self.matryoshka, default=0)
        if longest > self.dims:
            raise ValueError(f"matryoshka has {longest}, more than the model's {self.dims} dims")
        return self

    @model_validator(mode="after")
    def _widths_are_known(self) -> EncodeFacts:
        widths = {"dense": self.dims, "sparse": self.sparse_dims, "multivector": self.token_dims}
        names = {"dense": "dims", "sparse": "sparse_dims", "multivector": "token_dims"}
        for output in self.outputs:
            if not widths[output]:
                raise ValueError(f"outputs has {output!r}, so {names[output]!r} is needed")
        return self


class ScoreFacts(_Strict):
    """What `score` gives. `scale` says what a score is before any ranking.

    `probability` is within 0 and 1 (an activation over the model's logit), `logit` the raw value, `similarity` a cosine
    or a MaxSim. `instruction` is what the model reads before the query unless the caller gives another.
    """

    scale: Literal["probability", "logit", "similarity"] = "probability"
    instruction: str | None = None


class ExtractKind(StrEnum):
    """What an extraction finds; it decides which options a caller may send."""

    ENTITIES = "entities"
    RELATIONS = "relations"
    CLASSIFICATIONS = "classifications"
    STRUCTURE = "structure"
    OBJECTS = "objects"
    DOCUMENT = "document"
    TEXT = "text"
    TRANSCRIPT = "transcript"


class ExtractFacts(_Strict):
    """What `extract` finds. `labels` are the model's own where it has a fixed set; then a caller may choose of them."""

    kinds: Annotated[tuple[ExtractKind, ...], Field(min_length=1)] = (ExtractKind.ENTITIES,)
    labels: tuple[str, ...] = ()
    task: str | None = None
    tasks: tuple[str, ...] = ()


class GenerateFacts(_Strict):
    """What `generate` does. `max_new_tokens` is what a caller gets who does not say; the context is `max_length`.

    `grammar` tells whether output can be locked to one, `tools` whether
    the chat template takes tools.
    """

    max_new_tokens: Annotated[int, Field(ge=1)] = 512
    chat: bool = True
    grammar: bool = True
    tools: bool = False


class Tasks(_Strict):
    """The verbs a model does, each with its facts."""

    encode: EncodeFacts | None = None
    score: ScoreFacts | None = None
    extract: ExtractFacts | None = None
    generate: GenerateFacts | None = None


class CostCoefficients(_Strict):
    """Milliseconds of a batch of n items padded to length L: `base + per_token·n·L + per_square·n·L²`.

    A length counts what the spec's `unit` says. `per_new` is what each new token of one sequence adds where a model
    generates.
    """

    base: Milliseconds
    per_token: Milliseconds
    per_square: Milliseconds = 0.0
    per_new: Milliseconds = 0.0

    def item(self, length: int, new: int = 0) -> float:
        """What one item, padded to `length`, adds to its batch, with `new` tokens generated after it."""
        return length * (self.per_token + self.per_square * length) + self.per_new * new

    def batch(self, count: int, length: int) -> float:
        """The whole of a batch of `count` items padded to `length` tokens."""
        return self.base + count * self.item(length)

    def packed(self, lengths: Iterable[int]) -> float:
        """The whole of a batch that pads nothing."""
        return self.base + sum(map(self.item, lengths))


class Stay(_Strict):
    """How long a model stays on a device. None leaves it to the worker's settings.

    `keep_alive_s` is as in the settings: 0 keeps the model until room is needed.
    """

    preload: bool = False
    pinned: bool = False
    keep_alive_s: float | None = Field(default=None, ge=0)


class Loss(_Strict):
    """What a lower precision costs, as measured: cosines of its vectors to those of float32, over `texts`."""

    cosine_mean: float = Field(ge=-1, le=1)
    cosine_worst: float = Field(ge=-1, le=1)
    texts: str


class Profile(_Strict):
    """A named variant: option overrides, on top of another profile if `extends` names one."""

    extends: str | None = None
    load: dict[str, Any] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)


class Spec(_Strict):
    """One model of the catalog.

    `max_length` is in `unit`s, by default tokens, and includes special tokens. `parameters` counts weights. `load` goes
    to the family's own load-options model, `run` gives defaults for the request's options. `precisions` names the lower
    precisions that the model may be run in, each with its measured loss. `inputs` is what an item may hold, and
    `image_length` what one image counts, in `unit`s. `loras` are the adapters that a caller of `generate` may name.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$", max_length=200)
    family: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    description: str = ""
    licence: str = ""
    source: Source = Source()
    tasks: Tasks
    parameters: int = Field(ge=0)
    max_length: int = Field(ge=1)
    unit: Unit = "tokens"
    inputs: Annotated[tuple[InputKind, ...], Field(min_length=1)] = ("text",)
    image_length: Annotated[int, Field(ge=1)] = 1
    cost: CostCoefficients | None = None
    stay: Stay = Stay()
    precisions: dict[str, Loss] = Field(default_factory=dict)
    load: dict[str, Any] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)
    loras: dict[ProfileName, LoraSource] = Field(default_factory=dict)
    profiles: dict[ProfileName, Profile] = Field(default_factory=dict)
    verified: bool = False

    @model_validator(mode="after")
    def _profiles_extend_known(self) -> Spec:
        for name, profile in self.profiles.items():
            seen = {name}
            parent = profile.extends
            while parent is not None and parent != "default":
                if parent not in self.profiles:
                    raise ValueError(f"profile {name!r} extends {parent!r}, which is not a profile of this model")
                if parent in seen:
                    raise ValueError(f"profile {name!r} extends itself by way of {parent!r}")
                seen.add(parent)
                parent = self.profiles[parent].extends
        return self

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """The verbs this model does."""
        return tuple(v for v in Verb if self.does(v))

    def does(self, verb: Verb) -> bool:
        """Whether this model does it; a look-up, for every request."""
        return getattr(self.tasks, verb.value) is not None
