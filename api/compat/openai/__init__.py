"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.openai import batches, chat, completions, embeddings, files, responses, transcriptions

routers: tuple[APIRouter, ...] = (
    embeddings.router,
    completions.router,
    transcriptions.router,
    chat.router,
    responses.router,
    files.router,
    batches.router,
)
