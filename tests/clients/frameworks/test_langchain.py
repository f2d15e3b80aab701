"""LangChain's classes for OpenAI, pointed at the service by OPENAI_BASE_URL."""

from __future__ import annotations

import numpy as np
import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


@pytest.fixture
def embeddings(embedder: str) -> OpenAIEmbeddings:
    # By default the texts are sent as tokens of an OpenAI model, which no other model knows.
    return OpenAIEmbeddings(model=embedder, check_embedding_ctx_length=False)


@pytest.fixture
def chat(writer: str) -> ChatOpenAI:
    return ChatOpenAI(model=writer, temperature=0, max_tokens=24, seed=1)


def test_documents_and_queries_are_embedded_alike(embeddings: OpenAIEmbeddings, passages: list[str]) -> None:
    vectors = np.array(embeddings.embed_documents(passages))
    assert vectors.shape == (len(passages), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(embeddings.embed_query(passages[1]), vectors[1], atol=1e-3)


async def test_a_vector_store_finds_the_answer(
    embeddings: OpenAIEmbeddings, passages: list[str], question: str
) -> None:
    store = InMemoryVectorStore(embeddings)
    await store.aadd_texts(passages)
    (found,) = await store.asimilarity_search(question, k=1)
    assert found.page_content == passages[2]


def test_a_chain_answers(chat: ChatOpenAI) -> None:
    chain = ChatPromptTemplate.from_messages([("system", "You are terse."), ("user", "Name {what}.")]) | chat
    answer = chain.invoke({"what": "three colours"})
    assert answer.text.strip()
    used = answer.usage_metadata
    assert used is not None
    assert 0 < used["output_tokens"] <= 24
    assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"]


async def test_a_stream_says_what_the_whole_says(chat: ChatOpenAI) -> None:
    pieces = [piece async for piece in (chat | StrOutputParser()).astream("Name three colours.")]
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(pieces) == chat.invoke("Name three colours.").text


def test_an_answer_keeps_to_a_schema(writer: str, verdict: type[BaseModel]) -> None:
    chat = ChatOpenAI(model=writer, temperature=0, max_tokens=64)
    found = chat.with_structured_output(verdict, method="json_schema").invoke("A pipe burst. Decide the claim.")
    assert isinstance(found, verdict)
