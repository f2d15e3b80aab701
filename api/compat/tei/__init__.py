"""Routes of this dialect."""

from __future__ import annotations

from fastapi import APIRouter

from api.compat.tei import routes

routers: tuple[APIRouter, ...] = (routes.router,)
