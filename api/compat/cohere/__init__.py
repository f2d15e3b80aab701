"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.cohere import embed, rerank

routers: tuple[APIRouter, ...] = (rerank.router, embed.router)
