"""A sparse encoder without inference for queries: a random table for these, a trained tiny SPLADE for documents."""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling, Transformer

from tests.small import package


def build(folder: Path) -> None:
    torch.manual_seed(31)
    documents = Transformer(str(package("cognition", "model")), transformer_task="fill-mask")
    table = torch.rand(len(documents.tokenizer)) * 4
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(tokenizer=documents.tokenizer, weight=table, frozen=True)],
        document_modules=[documents, SpladePooling("max", activation_function="log1p_relu")],
    )
    SparseEncoder(modules=[router], device="cpu").save(str(folder), create_model_card=False)
