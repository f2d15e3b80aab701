"""All endpoints that a batch may name, by their paths."""

from __future__ import annotations

from collections.abc import Mapping

from api.compat.cohere import rerank
from api.compat.endpoints import Endpoint
from api.compat.native import ENDPOINTS as NATIVE
from api.compat.openai.endpoints import ENDPOINTS as OPENAI

_RERANK: tuple[Endpoint, ...] = (rerank.ENDPOINT, rerank.ENDPOINT_V2)

ENDPOINTS: Mapping[str, Endpoint] = {**OPENAI, **{endpoint.path: endpoint for endpoint in _RERANK}, **NATIVE}
