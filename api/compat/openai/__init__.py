"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.openai import embeddings

routers: tuple[APIRouter, ...] = (embeddings.router,)
