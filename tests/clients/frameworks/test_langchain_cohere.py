"""LangChain's classes for Cohere, pointed at the service by their own argument."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_core.documents import Document

RANKER = "roost/minilm-token-states"


@pytest.fixture
def theirs(url: str) -> dict[str, Any]:
    """What each class is told of the service."""
    return {"base_url": url, "cohere_api_key": "any"}


def test_documents_are_ranked_as_by_the_service(
    theirs: dict[str, Any], url: str, passages: list[str], question: str
) -> None:
    body = {"model": RANKER, "query": question, "documents": passages, "top_n": 2}
    want = httpx.post(f"{url}/v2/rerank", json=body, timeout=120).json()["results"]
    documents = [Document(text, metadata={"place": place}) for place, text in enumerate(passages)]
    best = CohereRerank(model=RANKER, top_n=2, **theirs).compress_documents(documents, question)
    assert best[0].page_content == passages[2]
    assert [one.metadata for one in best] == [
        {"place": one["index"], "relevance_score": pytest.approx(one["relevance_score"], abs=1e-4)} for one in want
    ]


async def test_documents_and_queries_are_embedded_alike(
    theirs: dict[str, Any], embedder: str, passages: list[str]
) -> None:
    embeddings = CohereEmbeddings(model=embedder, **theirs)
    vectors = np.array(embeddings.embed_documents(passages))
    assert vectors.shape == (len(passages), 384)
    np.testing.assert_allclose(await embeddings.aembed_query(passages[1]), vectors[1], atol=1e-3)
