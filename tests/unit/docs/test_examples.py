"""What the pages tell people to send or write is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from catalog.loader import Catalog
from catalog.schema import Spec
from tasks.prepare import Limits, check
from tasks.request import parse_request
from tasks.settings import Settings

ROOT = Path(__file__).parents[3]


def _blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _accept(body: object) -> None:
    settings = Settings()
    check(parse_request(body, settings.max_items), Catalog.load(), Limits.of(settings))


def test_every_job_that_the_readme_sends_is_accepted() -> None:
    sent = re.findall(r"--json '(\{.*\})'", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(sent) == 2
    for body in sent:
        _accept(json.loads(body))


def test_the_job_of_the_api_page_is_accepted() -> None:
    (job,) = [body for body in map(json.loads, _blocks("docs/api.md", "json")) if "verb" in body]
    _accept(job)


@pytest.mark.parametrize("page", ["README.md", "docs/adding-a-model.md"])
def test_the_model_of_a_page_is_a_valid_spec(page: str) -> None:
    (written,) = _blocks(page, "yaml")
    spec = Spec.model_validate(yaml.safe_load(written))
    assert spec.family in {path.stem for path in (ROOT / "engine" / "adapters").glob("*.py")}


def test_the_page_on_models_explains_every_key_of_a_spec() -> None:
    page = (ROOT / "docs" / "adding-a-model.md").read_text(encoding="utf-8")
    first_cells = "".join(re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", first_cells)) == set(Spec.model_fields)
