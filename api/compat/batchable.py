"""All endpoints that a batch may name."""

from __future__ import annotations

from collections.abc import Mapping

from api.compat.cohere import rerank
from api.compat.endpoints import Endpoint
from api.compat.native import ENDPOINTS as NATIVE
from api.compat.openai.endpoints import ENDPOINTS as OPENAI

ENDPOINTS: Mapping[str, Endpoint] = {
    **OPENAI,
    **NATIVE,
    rerank.ENDPOINT.path: rerank.ENDPOINT,
    rerank.ENDPOINT_V2.path: rerank.ENDPOINT_V2,
}
