"""Vector stores in their local modes, with vectors of the service: by OpenAI's client and by our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.utils.embedding_functions import OpenAIEmbeddingFunction, register_embedding_function
from openai import OpenAI
from qdrant_client import QdrantClient, models

from roost import Client, Embedder


def by_openai(url: str, embedder: str) -> Any:
    # The key's name is stored with the collection, the key is not.
    return OpenAIEmbeddingFunction(api_base=f"{url}/v1", model_name=embedder)


def by_ours(url: str, embedder: str) -> Any:
    return Embedder(embedder, Client(url))


@pytest.mark.parametrize("function", [by_openai, by_ours])
def test_chroma_asks_the_service_for_its_vectors(
    tmp_path: Path, function: Callable[..., Any], url: str, embedder: str, passages: list[str], question: str
) -> None:
    client = chromadb.PersistentClient(str(tmp_path))
    made = function(url, embedder)
    collection = client.create_collection("passages", embedding_function=made)
    collection.add(ids=[str(n) for n in range(len(passages))], documents=passages)
    again = chromadb.PersistentClient(str(tmp_path)).get_collection("passages", embedding_function=made)
    found = again.query(query_texts=[question], n_results=2)
    assert found["ids"][0][0] == "2"
    assert found["documents"] is not None
    assert found["documents"][0][0] == passages[2]


def test_chroma_rebuilds_our_function_from_what_it_stored(tmp_path: Path, embedder: str, passages: list[str]) -> None:
    register_embedding_function(Embedder)
    client = chromadb.PersistentClient(str(tmp_path))
    collection = client.create_collection("passages", embedding_function=Embedder(embedder, truncate=True))
    collection.add(ids=["0"], documents=passages[:1])
    again = chromadb.PersistentClient(str(tmp_path)).get_collection("passages")
    assert again.query(query_texts=["a flood"])["ids"] == [["0"]]
    assert again.configuration["embedding_function"].get_config() == {"model": embedder, "options": {"truncate": True}}


def lists_by_openai(url: str, embedder: str) -> Callable[[list[str]], list[list[float]]]:
    client = OpenAI()
    return lambda texts: [one.embedding for one in client.embeddings.create(model=embedder, input=texts).data]


@pytest.mark.parametrize("function", [lists_by_openai, by_ours])
def test_qdrant_keeps_vectors_of_the_service(
    tmp_path: Path, function: Callable[..., Any], url: str, embedder: str, passages: list[str], question: str
) -> None:
    embedded = function(url, embedder)
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
