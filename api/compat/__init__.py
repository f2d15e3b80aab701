"""Routes for clients that people already have: other services' requests, replies and errors over the same jobs.

Each dialect is a package that translates; `calls` runs the job of a request, `dialect` renders what goes wrong.
"""

from __future__ import annotations

from fastapi import APIRouter

from api.compat import cohere, openai, sie, tei

routers: tuple[APIRouter, ...] = (*sie.routers, *openai.routers, *cohere.routers, *tei.routers)
