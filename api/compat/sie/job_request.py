"""The body of a job of the peer's client, and the native request that it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from api.compat.endpoints import Asked
from api.compat.sie.grammars import native_grammar
from api.compat.sie.items import native_item, native_items
from api.compat.sie.options import given
from catalog.errors import suggestion
from catalog.terms import Lane, Verb
from tasks.errors import InvalidRequest

_CONNECTOR = frozenset(
    {"src", "sink", "connection", "sink_connection", "execution", "field_map", "output_field", "when"}
)


class SieJobRequest(BaseModel):
    """A job as the peer's client submits it. Where a field is not given its native default holds."""

    model_config = ConfigDict(extra="forbid")

    operation: Annotated[Verb, Field(description="What to do")]
    model: Annotated[str, Field(min_length=1, description="A model's id, or `id:profile`")]
    items: Annotated[list[str | dict[str, Any]], Field(min_length=1, description="Texts, or items as in POST /v1/jobs")]
    output_types: Annotated[list[str] | None, Field(description="Of `encode`")] = None
    options: Annotated[
        dict[str, Any] | None,
        Field(description="Of the operation: `query` of score, `labels` of extract, `max_new_tokens` of generate, …"),
    ] = None


class ConnectorRefused(InvalidRequest):
    """A job that reads from or writes to a store of yours, which this service cannot reach; send its items inline."""


def is_sie_job(body: object) -> bool:
    """Whether a body of POST /v1/jobs is the peer's: it says `operation` where ours says `verb`."""
    return isinstance(body, Mapping) and "operation" in body and "verb" not in body


def to_native(body: object) -> Asked:
    """The native request: one job in the bulk lane. Raises InvalidRequest, naming the peer's field."""
    if not isinstance(body, Mapping):
        raise InvalidRequest("The body must be a JSON object.")
    if found := _CONNECTOR & body.keys():
        param = "src" if "src" in found else min(found)
        raise ConnectorRefused(
            "Jobs that read from or write to a store ('src', 'sink', 'connection', 'execution', …) are not served: no "
            "object store is connected to this service. Send the items inline and read them by jobs.results().",
            param=param,
        )
    for name in body:
        if name not in SieJobRequest.model_fields:
            hint = suggestion(str(name), SieJobRequest.model_fields)
            raise InvalidRequest(f"Unknown field {str(name)[:100]!r}{hint}", param=str(name)[:200])
    for name in ("operation", "model"):
        if body.get(name) is None:
            raise InvalidRequest(f"{name!r} is missing.", param=name)
    verb, model = body["operation"], body["model"]
    if not isinstance(verb, str) or verb not in list(Verb) or not isinstance(model, str):
        # The check of the whole says what they should be.
        return Asked({"verb": verb, "model": model, "items": body.get("items")}, {"verb": "operation"})
    fields, rest = _fields(Verb(verb), body)
    asked = given(Verb(verb), model, rest, own={"output_types": "output_types"})
    names: dict[str, str] = {}
    if verb == Verb.GENERATE:
        asked.options.setdefault("raw", True)
        if "grammar" in asked.options:
            asked.options["grammar"], names = native_grammar(asked.options["grammar"], "options.grammar")
    raw = {
        "verb": verb,
        "model": asked.model,
        "items": _items(body.get("items")),
        "lane": Lane.BULK.value,
        "options": asked.options,
        **fields,
    }
    names |= {**asked.names, **{name: f"options.{name}" for name in fields}, "verb": "operation"}
    return Asked({name: value for name, value in raw.items() if value is not None}, names)


def _fields(verb: Verb, body: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """What is a field of a native request and an option of the peer's, and the body without it."""
    options = body.get("options")
    if verb is not Verb.SCORE or not isinstance(options, Mapping) or "query" not in options:
        return {}, body
    rest = {**body, "options": {name: value for name, value in options.items() if name != "query"}}
    return {"query": native_item(options["query"], "options.query")}, rest


def _items(items: object) -> object:
    """The items; an id may be a number there, and is a text here."""
    if not isinstance(items, list):
        return items
    return native_items([{**item, "id": str(item["id"])} if _is_numbered(item) else item for item in items])


def _is_numbered(item: object) -> bool:
    return isinstance(item, dict) and type(item.get("id")) is int
