"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.sie import health, pools

routers: tuple[APIRouter, ...] = (health.router, pools.router)
