"""Vectors of texts for vector stores, which ask for a function. Imports none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roost.client import Client


class Embedder:
    """A function from texts to vectors: Chroma takes it as an embedding function, Qdrant the lists that it gives.

    `options` are those of `encode`. Chroma keeps the model and the options with a collection, and neither the server's
    address nor a key: rebuilt from there, the client is that of the environment.
    """

    def __init__(self, model: str, client: Client | None = None, **options: Any) -> None:
        self._model = model
        self._client = client or Client()
        self._options = options

    def __call__(self, input: Sequence[str]) -> list[list[float]]:  # noqa: A002 - the name that Chroma asks for
        """A vector of float32 for each text. Raises as `Client.encode`, and ItemFailed for a text that has none."""
        return self._vectors(input)

    def embed_query(self, input: Sequence[str]) -> list[list[float]]:  # noqa: A002 - the name that Chroma asks for
        """The same of questions, with the model's own prompt for them if it has one."""
        return self._vectors(input, is_query=True)

    @staticmethod
    def name() -> str:
        """What Chroma stores with a collection and finds the class by, once it is registered there."""
        return "roost"

    def get_config(self) -> dict[str, Any]:
        """What Chroma stores with a collection."""
        return {"model": self._model, "options": self._options}

    @classmethod
    def build_from_config(cls, config: Mapping[str, Any]) -> Embedder:
        """The function of a stored collection."""
        return cls(config["model"], **config["options"])

    @staticmethod
    def validate_config(config: Mapping[str, Any]) -> None:
        """Chroma asks for it before it stores; whatever `get_config` gives is good."""

    def validate_config_update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Raise ValueError where vectors of another model would go among those that are there."""
        if old["model"] != new["model"]:
            raise ValueError(f"The collection has vectors of {old['model']!r}, not of {new['model']!r}.")

    def default_space(self) -> str:
        """The distance that Chroma uses unless told."""
        return "cosine"

    def supported_spaces(self) -> list[str]:
        """The distances that vectors may be compared by."""
        return ["cosine", "l2", "ip"]

    def is_legacy(self) -> bool:
        """Chroma can store how it is made."""
        return False

    def _vectors(self, texts: Sequence[str], **options: Any) -> list[list[float]]:
        result = self._client.encode(self._model, list(texts), **{**self._options, **options})
        found: list[list[float]] = result.floats.tolist()
        return found
