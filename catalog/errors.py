"""The base of every error that Roost raises on purpose, and the catalog's own errors.

An error is data: a `code` that never changes, a message that says what to do, whether trying again can help, and the
request field at fault where there is one. Each layer has one such module; each border translates once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum


class RoostError(Exception):
    """Base of all deliberate errors. Catch this one at a border to translate it."""

    code: str = "internal"
    retryable: bool = False
    retry_after_s: float | None = None
    """When the same request may succeed, where that is known."""

    def __init__(self, message: str | None = None, *, param: str | None = None) -> None:
        self.message = message or (self.__doc__ or self.code).strip()
        self.param = param
        super().__init__(self.message)


class CatalogError(RoostError):
    """The catalog cannot answer; read the message for the model and the field."""

    code = "catalog_error"


class InvalidSpec(CatalogError):
    """A model's YAML is not valid; mend the named field."""

    code = "invalid_spec"


class UnknownModel(CatalogError):
    """No such model in the catalog; list what there is with GET /v1/models."""

    code = "model_not_found"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.nearest = nearest(name, known)
        hint = f" Did you mean {' or '.join(repr(n) for n in self.nearest)}?" if self.nearest else ""
        super().__init__(f"Model {name[:200]!r} is not in the catalog.{hint}", param="model")

    def adding(self, more: str) -> UnknownModel:
        """This error, with one more sentence."""
        self.message = f"{self.message} {more}"
        self.args = (self.message,)
        return self


class AmbiguousModel(UnknownModel):
    """A bare name that several models share; give the whole id."""

    def __init__(self, name: str, ids: Sequence[str]) -> None:
        super().__init__(name, ())
        self.nearest = list(ids)[:3]
        names = " or ".join(repr(i) for i in self.nearest)
        self.message = f"The name {name[:200]!r} fits {len(ids)} models; give the whole id, such as {names}."
        self.args = (self.message,)


class ModelNotAllowed(CatalogError):
    """This model needs what the operator has not allowed it; ask for another, or have it named in ROOST_TRUST."""

    code = "model_not_allowed"


class UnservedModel(CatalogError):
    """There is such a model, but no family serves it; the message says why."""

    code = "model_not_served"


class UnsupportedVerb(CatalogError):
    """The model does not do this; choose a model that lists the verb."""

    code = "unsupported_verb"


class InvalidOption(CatalogError):
    """An option is unknown or has a wrong value; the message names it and what is valid."""

    code = "invalid_option"


class WeightsReason(StrEnum):
    """Why a model's files cannot be had. The values are those of `engine.errors.LoadReason`."""

    NOT_FOUND = "not_found"
    GATED = "gated"
    NETWORK = "network"
    CORRUPT = "corrupt"
    UNKNOWN = "unknown"


class WeightsUnavailable(CatalogError):
    """The model's files can be had neither from a folder, nor from an installed package, nor from the hub."""

    code = "weights_unavailable"

    def __init__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        reason: WeightsReason = WeightsReason.NOT_FOUND,
    ) -> None:
        self.reason = reason
        self.retryable = reason is WeightsReason.NETWORK
        super().__init__(message, param=param)


def nearest(name: str, known: Sequence[str], count: int = 3) -> list[str]:
    """The known names most like `name`, best first; empty when none is near. Swapped letters are nearer than others."""
    folded = {k.lower(): k for k in known}
    tails = {k.rsplit("/", 1)[-1].lower(): k for k in known}
    asked = name[:200].lower()
    close = get_close_matches(asked, {**folded, **tails}, n=count + 3, cutoff=0.5)
    close.sort(key=lambda found: sorted(found) != sorted(asked))
    return list(dict.fromkeys(folded.get(c) or tails[c] for c in close))[:count]


def suggestion(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    """The end of a message on an unknown name: the nearest known one, or `otherwise` where none is near."""
    close = nearest(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else otherwise
