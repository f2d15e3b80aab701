"""The endpoints of OpenAI's dialect that a batch may name, by their paths."""

from __future__ import annotations

from collections.abc import Mapping

from api.compat.endpoints import Endpoint
from api.compat.openai import chat, completions, embeddings, responses

_ALL: tuple[Endpoint, ...] = (embeddings.ENDPOINT, completions.ENDPOINT, chat.ENDPOINT, responses.ENDPOINT)

ENDPOINTS: Mapping[str, Endpoint] = {endpoint.path: endpoint for endpoint in _ALL}
