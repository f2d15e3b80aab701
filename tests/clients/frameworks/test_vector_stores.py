"""Vector stores in their local modes, with vectors of the service."""

from __future__ import annotations

from pathlib import Path

import chromadb
import pytest
from chromadb.utils.embedding_functions import OpenAIEmbeddingFunction
from openai import OpenAI
from qdrant_client import QdrantClient, models


def test_chroma_asks_the_service_for_its_vectors(
    tmp_path: Path, url: str, embedder: str, passages: list[str], question: str
) -> None:
    client = chromadb.PersistentClient(str(tmp_path))
    # The key's name is stored with the collection, the key is not.
    function = OpenAIEmbeddingFunction(api_base=f"{url}/v1", model_name=embedder)
    collection = client.create_collection("passages", embedding_function=function)
    collection.add(ids=[str(n) for n in range(len(passages))], documents=passages)
    again = chromadb.PersistentClient(str(tmp_path)).get_collection("passages", embedding_function=function)
    found = again.query(query_texts=[question], n_results=2)
    assert found["ids"][0][0] == "2"
    assert found["documents"] is not None
    assert found["documents"][0][0] == passages[2]


@pytest.fixture
def openai() -> OpenAI:
    return OpenAI()


def test_qdrant_keeps_vectors_of_the_service(
    tmp_path: Path, openai: OpenAI, embedder: str, passages: list[str], question: str
) -> None:
    def embedded(texts: list[str]) -> list[list[float]]:
        return [one.embedding for one in openai.embeddings.create(model=embedder, input=texts).data]

    client = QdrantClient(path=str(tmp_path))
    client.create_collection("passages", models.VectorParams(size=384, distance=models.Distance.COSINE))
    points = [
        models.PointStruct(id=n, vector=vector, payload={"text": text})
        for n, (text, vector) in enumerate(zip(passages, embedded(passages), strict=True))
    ]
    client.upsert("passages", points)
    (vector,) = embedded([question])
    best = client.query_points("passages", query=vector, limit=2).points[0]
    assert best.id == 2
    assert best.payload == {"text": passages[2]}
    client.close()
