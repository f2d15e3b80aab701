"""The four verbs as endpoints of batches: a line's body is that of POST /v1/jobs, but for the verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.compat.endpoints import Asked, Ended, Endpoint
from api.results import result_object
from catalog.terms import Verb
from tasks.errors import InvalidRequest
from tasks.rendering import Encoding, json_rows


def _endpoint(verb: Verb) -> Endpoint:
    def to_job(body: Mapping[str, Any]) -> Asked:
        if body.get("verb", verb.value) != verb.value:
            raise InvalidRequest(f"'verb' must be {verb.value!r}, or left out.", param="verb")
        return Asked({**body, "verb": verb.value})

    return Endpoint(f"/v1/{verb.value}", to_job, _to_reply)


def _to_reply(ended: Ended, _: Mapping[str, Any]) -> dict[str, Any]:
    """The result object of the native API; an item that failed has its error in it."""
    job, scores = ended.job, None if ended.scores is None else [dict(score) for score in ended.scores]
    rows = json_rows(ended.rows, Encoding.FLOAT)
    return result_object(str(job.id), job.state.value, job.model, job.usage, rows, scores)


ENDPOINTS: Mapping[str, Endpoint] = {endpoint.path: endpoint for endpoint in map(_endpoint, Verb)}
