"""The shape of a model's YAML. Strict: an unknown key is an error that names it.

A spec says what a model is (facts) and how its family loads it. A profile is a named variant, addressed
`model:profile`, that overrides load-time or run-time options.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from catalog.terms import Verb

Dim = Annotated[int, Field(ge=1, le=65_536)]
MOST_COEFFICIENT = 1e7
Milliseconds = Annotated[float, Field(ge=0, le=MOST_COEFFICIENT, allow_inf_nan=False)]
"""At most some hours: what is more is a slip, and would stop the scheduler's clock."""
Unit = Literal["tokens", "pages", "tiles", "seconds"]
"""What an item's length counts: text tokens, pages of a document, tiles of an image, seconds of audio."""
ProfileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PackageWeights(_Strict):
    """Weights that an installed Python package carries; found without importing it."""

    name: str
    path: str = ""


class Source(_Strict):
    """Where the files are. Tried in this order: `path`, the hub's cache, the hub, `package`."""

    hub: str | None = None
    revision: str | None = None
    package: PackageWeights | None = None
    path: str | None = None


class EncodeFacts(_Strict):
    """What `encode` gives: vectors of `dims`, or of one of `matryoshka` when asked by `dimensions`."""

    dims: Dim
    matryoshka: tuple[Dim, ...] = ()
    prompts: dict[str, str] = Field(default_factory=dict)
    outputs: tuple[Literal["dense", "sparse", "multivector"], ...] = ("dense",)

    @model_validator(mode="after")
    def _matryoshka_is_shorter(self) -> EncodeFacts:
        longest = max(self.matryoshka, default=0)
        if longest > self.dims:
            raise ValueError(f"matryoshka has {longest}, more than the model's {self.dims} dims")
        return self


class Tasks(_Strict):
    """The verbs a model does, each with its facts."""

    encode: EncodeFacts | None = None
    score: dict[str, Any] | None = None
    extract: dict[str, Any] | None = None
    generate: dict[str, Any] | None = None


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
    precisions that the model may be run in, each with its measured loss.
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
    cost: CostCoefficients | None = None
    stay: Stay = Stay()
    precisions: dict[str, Loss] = Field(default_factory=dict)
    load: dict[str, Any] = Field(default_factory=dict)
    run: dict[str, Any] = Field(default_factory=dict)
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
