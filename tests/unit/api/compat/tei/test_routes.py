"""What a body without a route of its own asks for."""

from __future__ import annotations

from typing import Any

import pytest

from api.compat.tei.embed import EMBED, EMBED_SPARSE, SIMILARITY
from api.compat.tei.predict import PREDICT
from api.compat.tei.rerank import RERANK
from api.compat.tei.routes import by_body, router
from api.compat.tei.work import Work


@pytest.mark.parametrize(
    ("body", "works"),
    [
        ({"query": "q", "texts": ["a"]}, [RERANK]),
        ({"texts": ["a"]}, [RERANK]),
        ({"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {}}, [SIMILARITY]),
        ({"inputs": "a", "parameters": {"candidate_labels": ["b"]}}, [PREDICT]),
        ({"inputs": "a"}, [EMBED, EMBED_SPARSE, PREDICT]),
        ({"inputs": "a", "parameters": 3}, [EMBED, EMBED_SPARSE, PREDICT]),
        ({}, [EMBED, EMBED_SPARSE, PREDICT]),
    ],
)
def test_the_body_says_what_is_asked_for_and_else_the_models_kind(body: dict[str, Any], works: list[Work]) -> None:
    assert list(by_body(body)) == works


def test_what_fits_every_path_below_a_model_comes_last() -> None:
    paths = [getattr(route, "path", "") for route in router.routes]
    bare = paths.index("/tei/{model:path}")
    assert all(path == "/" or not path.startswith("/tei/") for path in paths[bare + 1 :])
    assert {path.removeprefix("/tei/{model:path}") for path in paths[:bare]} >= {
        "/embed",
        "/rerank",
        "/info",
        "/health",
    }
