"""Models that no YAML names, and YAMLs that change, at the door."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.api.conftest import Api, Start

pytestmark = pytest.mark.anyio

OWL = "id: acme/owl\nfamily: fake\ntasks: {{encode: {{dims: {dims}}}}}\nparameters: 0\nmax_length: 16\n"


@pytest.fixture
def catalog() -> None:
    """That of the settings."""


@pytest.fixture
async def api(start_api: Start, tmp_path: Path) -> Api:
    model = tmp_path / "models" / "org" / "tagger"
    model.mkdir(parents=True)
    config: dict[str, object] = {"architectures": ["BertForTokenClassification"], "id2label": {"0": "O", "1": "B-PER"}}
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").write_bytes(b"0" * 64)
    (tmp_path / "yamls").mkdir()
    (tmp_path / "yamls" / "owl.yaml").write_text(OWL.format(dims=8))
    return await start_api(
        model_folders=str(tmp_path / "models"), catalog=str(tmp_path / "yamls"), hub_models="off", catalog_poll_s=0.02
    )


async def test_a_folder_of_the_operators_is_a_model_by_its_name(api: Api) -> None:
    reply = await api.submit("a text", model="org/tagger", verb="extract")
    assert reply.status_code == 202, reply.text
    told = reply.json()["model"]
    assert told.startswith("org/tagger@local-")
    shown = (await api.http.get("/v1/models/org/tagger")).json()
    assert (shown["family"], shown["verbs"]) == ("token_classifier", ["extract"])
    assert (await api.submit("a text", model=told, verb="extract")).status_code == 202


async def test_a_name_that_leads_nowhere_is_answered_as_before(api: Api) -> None:
    reply = await api.submit("a text", model="org/tager", verb="extract")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_model_that_needs_what_nobody_allowed_is_told_of_and_not_served(api: Api) -> None:
    reply = await api.submit("a text", model="BAAI/bge-m3")
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "model_not_allowed")
    shown = (await api.http.get("/v1/models/BAAI/bge-m3")).json()
    assert (shown["needs"], shown["allowed"]) == (["pickle"], False)


async def test_a_yaml_that_changes_is_served_as_it_is_now_and_a_bad_one_as_it_was(api: Api, tmp_path: Path) -> None:
    async def dims() -> object:
        return (await api.http.get("/v1/models/acme/owl")).json()["dims"]

    draft, file = tmp_path / "yamls" / ".owl", tmp_path / "yamls" / "owl.yaml"
    draft.write_text(OWL.format(dims=9))
    draft.replace(file)
    api.services.catalog.refresh()
    assert await dims() == 9
    draft.write_text("id: acme/owl\nfamilly: fake\n")
    draft.replace(file)
    api.services.catalog.refresh()
    assert await dims() == 9
    problems = (await api.http.get("/v1/models")).json()["problems"]
    assert len(problems) == 1
    assert problems[0].startswith("owl.yaml: familly: ")
    assert str(tmp_path) not in problems[0]
