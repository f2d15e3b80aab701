"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.sie import chunks, encode, estimate, extract, generate, health, jobs, pools, recommend, score

routers: tuple[APIRouter, ...] = (
    encode.router,
    score.router,
    extract.router,
    generate.router,
    chunks.router,
    jobs.router,
    estimate.router,
    recommend.router,
    health.router,
    pools.router,
)
