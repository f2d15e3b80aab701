"""The server that people write by hand: FastAPI, one SentenceTransformer, a thread pool, uvicorn. The peer to beat.

A plain `def` route, so FastAPI runs each request in its pool of forty threads; torch's own threads as torch sets them;
one forward pass a request. It stores nothing. Run it as `python -m tests.bench.handwritten FOLDER PORT`.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer


class Texts(BaseModel):
    """The body of a request."""

    texts: list[str]


class Vectors(BaseModel):
    """The body of an answer."""

    vectors: list[list[float]]


def build(folder: str) -> FastAPI:
    """The application over the model in `folder`."""
    model = SentenceTransformer(folder, device="cpu")
    app = FastAPI()

    @app.post("/encode")
    def encode(body: Texts) -> Vectors:
        vectors = model.encode(body.texts, normalize_embeddings=True, show_progress_bar=False)
        return Vectors(vectors=vectors.tolist())

    @app.get("/ready")
    def ready() -> str:
        return "ok"

    return app


if __name__ == "__main__":
    uvicorn.run(build(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
