"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.openai import batches, chat, completions, embeddings, files, transcriptions

routers: tuple[APIRouter, ...] = (
    embeddings.router,
    completions.router,
    transcriptions.router,
    chat.router,
    files.router,
    batches.router,
)
