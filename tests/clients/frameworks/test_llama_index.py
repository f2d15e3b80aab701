"""LlamaIndex's classes for services that are like OpenAI, and an index over texts."""

from __future__ import annotations

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel


@pytest.fixture
def embedding(url: str, embedder: str) -> OpenAILikeEmbedding:
    return OpenAILikeEmbedding(model_name=embedder, api_base=f"{url}/v1")


@pytest.fixture
def llm(url: str, writer: str) -> OpenAILike:
    return OpenAILike(
        model=writer,
        api_base=f"{url}/v1",
        api_key="none",
        is_chat_model=True,
        should_use_structured_outputs=True,
        context_window=2048,
        temperature=0,
        max_tokens=48,
    )


def test_an_index_finds_the_answer(embedding: OpenAILikeEmbedding, passages: list[str], question: str) -> None:
    index = VectorStoreIndex.from_documents([Document(text=text) for text in passages], embed_model=embedding)
    (found,) = index.as_retriever(similarity_top_k=1).retrieve(question)
    assert found.text == passages[2]


async def test_the_class_of_openai_itself_takes_other_models(url: str, embedder: str) -> None:
    embedding = OpenAIEmbedding(model_name=embedder, api_base=f"{url}/v1", api_key="none")
    assert len(await embedding.aget_text_embedding("a text")) == 384


def test_a_question_is_answered_from_the_index(
    embedding: OpenAILikeEmbedding, llm: OpenAILike, passages: list[str], question: str
) -> None:
    index = VectorStoreIndex.from_documents([Document(text=text) for text in passages], embed_model=embedding)
    answer = index.as_query_engine(llm=llm, similarity_top_k=1).query(question)
    assert str(answer).strip()
    assert [node.text for node in answer.source_nodes] == [passages[2]]


async def test_a_stream_says_what_the_whole_says(llm: OpenAILike) -> None:
    asked = [ChatMessage(role="user", content="Name three colours.")]
    stream = await llm.astream_chat(asked)
    pieces = [piece.delta or "" async for piece in stream]
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(pieces) == llm.chat(asked).message.content


def test_a_prompt_is_continued(url: str, writer: str) -> None:
    plain = OpenAILike(model=writer, api_base=f"{url}/v1", api_key="none", temperature=0, max_tokens=8)
    assert plain.complete("One, two, three,").text.strip()


def test_an_answer_keeps_to_a_schema(llm: OpenAILike, verdict: type[BaseModel]) -> None:
    found = llm.as_structured_llm(verdict).complete("A pipe burst. Decide the claim.")
    assert isinstance(found.raw, verdict)
