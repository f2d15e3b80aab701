"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.openai import chat, completions, embeddings

routers: tuple[APIRouter, ...] = (embeddings.router, completions.router, chat.router)
