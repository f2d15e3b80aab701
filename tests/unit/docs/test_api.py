"""docs/api.md names the same routes, fields and error codes as the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.routing import Route

from api import compat
from api.app import create_app
from api.errors import STATUS
from api.model_schemas import ModelObject, WorkerObject
from api.schemas import Timings
from catalog.loader import Catalog
from tasks.request import JobRequest
from tasks.settings import Settings


@pytest.fixture(scope="module")
def page() -> str:
    return (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_is_listed_and_no_other(page: str) -> None:
    app = create_app(Settings(), Catalog([]))
    # Those of other services' clients are in compatibility.md.
    others = {route.path_format for router in compat.routers for route in router.routes if isinstance(route, Route)}
    served = {
        f"{method.upper()} {path}"
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if path not in others
    }
    listed = re.findall(r"^\| `([A-Z]+ /[^`?]*)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(served)


def test_every_error_code_has_its_status(page: str) -> None:
    rows = re.findall(r"^\| (\d{3}) \| ((?:`\w+`(?:, )?)+) \|$", page, re.MULTILINE)
    told = {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert told == dict(STATUS)


def test_the_worker_of_the_page_is_one(page: str) -> None:
    [shown] = [
        block for block in re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if '"memory"' in block
    ]
    WorkerObject.model_validate_json(shown)


def test_every_part_of_the_timings_is_explained_in_order(page: str) -> None:
    section = page.partition("### Where the time went")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(Timings.model_fields)[:-1]


def test_every_field_of_a_model_that_changes_is_explained(page: str) -> None:
    section = page.partition("\n## Models")[2].partition("A model's state on a worker")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert named >= set(ModelObject.model_fields) - {"id", "object", "family", "description", "outputs"}


def test_every_field_of_a_request_is_explained(page: str) -> None:
    section = page.partition("| field | default | limits |")[2].partition("\nThe body is")[0]
    first = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", " ".join(first))) == set(JobRequest.model_fields)
