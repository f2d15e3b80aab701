"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.sie import health

routers: tuple[APIRouter, ...] = (health.router,)
