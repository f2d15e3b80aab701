from __future__ import annotations

import pytest

from roost.client import Client
from roost.embedding import Embedder


def test_what_chroma_stores_makes_the_same_function_and_holds_no_key() -> None:
    made = Embedder("acme/owl", Client("http://owl.example", "secret"), truncate=True)
    config = made.get_config()
    assert config == {"model": "acme/owl", "options": {"truncate": True}}
    assert Embedder.build_from_config(config).get_config() == config


def test_a_collection_is_not_given_to_another_model() -> None:
    made = Embedder("acme/owl")
    made.validate_config_update({"model": "a", "options": {}}, {"model": "a", "options": {"truncate": True}})
    with pytest.raises(ValueError, match="vectors of 'a', not of 'b'"):
        made.validate_config_update({"model": "a", "options": {}}, {"model": "b", "options": {}})
