"""GET /v1/usage: what a tenant used."""

from __future__ import annotations

import csv
import re
from dataclasses import asdict
from datetime import UTC, date, datetime
from io import StringIO
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api.identity import identity
from api.media import Media, dumps
from api.queries import read_query
from api.route import PlainRoute, documented
from api.routes.replies import errors
from api.schemas import Reply
from api.services import services
from tasks.api_keys import Scope, ScopeMissing, tenant_name
from tasks.errors import InvalidRequest
from tasks.store import usage
from tasks.store.usage import By

router = APIRouter(route_class=PlainRoute, tags=["usage"])

MOST_LINES = 10_000
_DAYS = 30
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_CSV = "text/csv"


def _a_day(value: object) -> object:
    """A day as it is written, and nothing else that a date can be read from."""
    if isinstance(value, str) and not _DAY.fullmatch(value):
        raise ValueError("must be a day, as 2026-11-30")
    return value


Day = Annotated[date, BeforeValidator(_a_day)]


class UsageQuery(BaseModel):
    """What to report."""

    model_config = ConfigDict(extra="forbid")

    since: Annotated[Day | None, Field(description="The first day, in UTC; without it 30 days before the last")] = None
    until: Annotated[Day | None, Field(description="The last day, in UTC; without it today")] = None
    by: Annotated[By, Field(description="A line for each model, or for each day")] = By.MODEL
    tenant: Annotated[
        str | None, Field(description="Another tenant, or `*` for all: needs the scope `admin`", max_length=63)
    ] = None


class UsageLine(Reply):
    """What was used of a model, or on a day. `device_ms` are milliseconds of a device; `tokens` those read and made."""

    tenant: str
    model: str | None = None
    day: date | None = None
    jobs: int
    jobs_failed: int
    items: int
    items_failed: int
    tokens: int
    device_ms: float


class UsageReport(Reply):
    """Usage by tenant, and by model or day. A line of a job is counted when the job ends, on that day."""

    object: Literal["usage"]
    since: date
    until: date
    data: list[UsageLine]


def _signature(query: Annotated[UsageQuery, Query()]) -> None: ...


@router.get(
    "/v1/usage",
    summary="Report what was used",
    response_model=UsageReport,
    responses={200: {"content": {_CSV: {"schema": {"type": "string"}}}}, **errors(403, 422, 429, 503)},
)
@documented(_signature)
async def report(request: Request) -> Response:
    """Jobs, items, tokens and device time of your jobs that have ended, as JSON, or as CSV with `Accept: text/csv`."""
    query = read_query(request, UsageQuery)
    it, who = services(request), identity(request)
    until = query.until or datetime.fromtimestamp(it.clock(), UTC).date()
    since = query.since or date.fromordinal(max(1, until.toordinal() - _DAYS))
    if since > until:
        raise InvalidRequest("'since' must not be after 'until'.", param="since")
    asked = query.tenant or who.tenant
    if asked != who.tenant and Scope.ADMIN not in who.scopes:
        raise ScopeMissing.of(Scope.ADMIN, who.tenant, who.scopes, param="tenant")
    caller = None if asked == "*" else tenant_name(asked)
    found = await it.database.run(usage.report, caller, since, until, query.by, MOST_LINES)
    data = [{"tenant": line.tenant, query.by.value: line.key, **asdict(line.used)} for line in found]
    if _CSV in request.headers.get("accept", ""):
        return Response(_table(data, query.by), media_type=_CSV)
    body = {"object": "usage", "since": since.isoformat(), "until": until.isoformat(), "data": data}
    return Response(dumps(body), media_type=Media.JSON.value)


def _table(data: list[dict[str, object]], by: By) -> str:
    text = StringIO()
    names = ["tenant", by.value, *(name for name in UsageLine.model_fields if name not in {"tenant", "model", "day"})]
    table = csv.DictWriter(text, names)
    table.writeheader()
    table.writerows(data)
    return text.getvalue()
