"""What the pages tell people to send or write is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel

from catalog.loader import BUILT_IN, Catalog
from catalog.schema import Loss, Spec, Stay, Unit
from engine.adapters.base import Adapter, StepAdapter
from engine.adapters.sentence_transformer import SentenceTransformerOptions
from engine.device import FakeDevice
from engine.families import check as check_specs
from engine.sizes import parse_budget
from tasks.prepare import Limits, check
from tasks.request import parse_request
from tasks.settings import Settings

ROOT = Path(__file__).parents[3]


def _blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _rows(page: str, head: str) -> list[list[str]]:
    """The cells of the table that begins with `head`."""
    table = (ROOT / page).read_text(encoding="utf-8").partition(head)[2].partition("\n\n")[0]
    return [line.strip("|").split("|") for line in table.splitlines()[2:]]


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
def test_the_first_model_of_a_page_is_the_one_that_is_shipped(page: str) -> None:
    written = _blocks(page, "yaml")[0]
    assert f"{yaml.safe_load(written)['id'].replace('/', '__')}.yaml" in {file.name for file in BUILT_IN.iterdir()}
    assert written in {file.read_text(encoding="utf-8") for file in BUILT_IN.iterdir()}


def test_the_models_of_the_page_on_models_are_valid_and_fit_their_family(tmp_path: Path) -> None:
    shipped, least, profiles, stay, *others = _blocks("docs/adding-a-model.md", "yaml")
    given = yaml.safe_load(shipped)
    assert "profiles" in given, "the page tells of the first model's own profiles"
    given |= yaml.safe_load(profiles) | yaml.safe_load(stay)
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(given), encoding="utf-8")
    for name, written in enumerate([least, *others, *_blocks("docs/families.md", "yaml")]):
        (tmp_path / f"b{name}.yaml").write_text(written, encoding="utf-8")
    catalog = Catalog.load([tmp_path], strict=True)
    assert check_specs(catalog.specs) == []
    assert catalog.find("acme/owl").load == {}
    small = catalog.find("all-MiniLM-L6-v2:small")
    assert (small.load, small.run) == ({"dtype": "bfloat16"}, {"output_dtype": "int8"})
    assert small.spec.stay == Stay(preload=True, keep_alive_s=600)


def test_the_page_on_models_explains_every_key_of_a_spec_and_tells_which_are_required() -> None:
    rows = _rows("docs/adding-a-model.md", "| key | required |")
    told = {key: required.strip() == "yes" for keys, required, _ in rows for key in re.findall(r"`(\w+)`", keys)}
    assert told == {key: field.is_required() for key, field in Spec.model_fields.items()}


@pytest.mark.parametrize(("head", "shape"), [("| key of `stay` |", Stay), ("| key of a precision |", Loss)])
def test_the_page_on_models_explains_every_key_of_a_part_of_a_spec(head: str, shape: type[BaseModel]) -> None:
    assert [row[0].strip(" `") for row in _rows("docs/adding-a-model.md", head)] == list(shape.model_fields)


def test_the_page_on_models_names_every_unit() -> None:
    ((_, _, told),) = [row for row in _rows("docs/adding-a-model.md", "| key | required |") if "`unit`" in row[0]]
    assert set(get_args(Unit)) <= set(re.findall(r"`(\w+)`", told))


def test_the_page_on_models_tells_of_every_member_that_a_family_may_override() -> None:
    page = (ROOT / "docs/adding-a-model.md").read_text(encoding="utf-8").partition("## A new family")[2]
    members = {name for kind in (Adapter, StepAdapter) for name in vars(kind) if not name.startswith("_")}
    assert {name for name in members if not re.search(rf"`{name}`|\b{name}\(|    {name} = ", page)} == set()


def test_two_of_the_three_models_of_the_readme_fit_the_budget_that_it_sets() -> None:
    (command,) = re.findall(r"^\$ (ROOST_CATALOG=\S+ .*) make up$", (ROOT / "README.md").read_text(), re.MULTILINE)
    given = {name.removeprefix("ROOST_").lower(): value for name, value in re.findall(r"(ROOST_\w+)=(\S+)", command)}
    settings = Settings.model_validate(given)
    catalog = Catalog.load([ROOT / settings.catalog], strict=True)
    birds = [catalog.find(f"birds/{name}").spec for name in ("owl", "wren", "rook")]
    assert check_specs(birds) == []
    budget = parse_budget(settings.budget, FakeDevice(2**34))
    assert 2 * birds[0].load["bytes"] <= budget < sum(spec.load["bytes"] for spec in birds)


def test_the_page_on_models_tells_every_load_option_its_default_and_its_values() -> None:
    rows = _rows("docs/adding-a-model.md", "| option | default | values |")
    told = {name.strip(" `"): (default.strip(" `"), values.partition(":")[0]) for name, default, values in rows}
    assert {name: (default, tuple(re.findall(r"`(\w+)`", values))) for name, (default, values) in told.items()} == {
        name: (field.default, get_args(field.annotation))
        for name, field in SentenceTransformerOptions.model_fields.items()
    }
