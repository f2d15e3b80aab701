"""Models that no YAML names: found by name on a hub of the test's own, in its cache, and in folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from catalog.errors import ModelNotAllowed, UnknownModel, UnservedModel, WeightsReason, WeightsUnavailable
from catalog.hub import HubModels
from catalog.live import LiveCatalog
from catalog.loader import Choice
from catalog.places import FolderPlace, HubPlace
from catalog.repository import MOST_CONFIGS
from catalog.weights import Locator
from tests.unit.catalog.conftest import COMMIT, Hub

RERANKER = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "id2label": {"0": "LABEL_0"},
    "max_position_embeddings": 512,
}


def files(config: dict[str, Any], weights: str = "model.safetensors") -> dict[str, bytes]:
    return {"config.json": json.dumps(config).encode(), weights: b"0" * 400}


def catalog(tmp_path: Path, *places: Any, trusted: tuple[str, ...] = (), **values: Any) -> LiveCatalog:
    (tmp_path / "none").mkdir(exist_ok=True)
    hub = HubModels(places, trusted=trusted, **values)
    return LiveCatalog(built_in=tmp_path / "none", trusted=trusted, hub=hub)


@pytest.fixture
def place(hub: Hub, tmp_path: Path) -> HubPlace:
    return HubPlace(endpoint=hub.endpoint, cache_dir=tmp_path / "cache")


def test_a_repository_is_found_by_name_under_its_commit(hub: Hub, place: HubPlace, tmp_path: Path) -> None:
    hub.repos["org/m"] = files(RERANKER)
    live = catalog(tmp_path, place)
    with pytest.raises(UnknownModel):
        live.find("org/m")
    assert live.must_ask("org/m")
    choice = live.ask("org/m")
    assert (choice.key, choice.spec.family) == (f"org/m@{COMMIT}", "cross_encoder")
    assert (choice.spec.source.hub, choice.spec.source.revision) == ("org/m", COMMIT)
    assert hub.sent == ["config.json"], "no weights were fetched to find out what it is"


def test_the_key_of_a_job_means_the_same_to_another_process(hub: Hub, place: HubPlace, tmp_path: Path) -> None:
    hub.repos["org/m"] = files(RERANKER)
    api = catalog(tmp_path, place).ask("org/m")
    worker = catalog(tmp_path, HubPlace(endpoint=hub.endpoint, cache_dir=tmp_path / "other"))
    assert worker.must_ask(api.key)
    assert worker.ask(api.key) == api
    assert not worker.must_ask(api.key)


def test_what_was_found_is_asked_again_after_a_minute_and_a_commit_never(
    hub: Hub, place: HubPlace, tmp_path: Path
) -> None:
    hub.repos["org/m"] = files(RERANKER)
    now = [0.0]
    live = catalog(tmp_path, place, clock=lambda: now[0])
    key = live.ask("org/m").key
    now[0] = 61.0
    assert (live.must_ask("org/m"), live.must_ask(key)) == (True, False)


def test_a_name_that_leads_nowhere_is_looked_for_once_a_minute(hub: Hub, place: HubPlace, tmp_path: Path) -> None:
    now = [0.0]
    live = catalog(tmp_path, place, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(UnknownModel, match="'org/none' is not in the catalog"):
            live.ask("org/none")
    assert len(hub.asked) == 1
    hub.repos["org/none"] = files(RERANKER)
    now[0] = 61.0
    assert live.ask("org/none").spec.id == "org/none"


@pytest.mark.parametrize("name", ["", "m", "../m", "org/../m", "/etc/passwd", "org/m/x", "org/m@", "org/m@a/b", "-o/m"])
def test_what_is_no_name_of_a_repository_asks_nobody(hub: Hub, place: HubPlace, tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownModel):
        catalog(tmp_path, place).ask(name)
    assert hub.asked == []


def test_a_gated_repository_says_what_to_do(hub: Hub, place: HubPlace, tmp_path: Path) -> None:
    hub.refuse = (403, "GatedRepo")
    with pytest.raises(WeightsUnavailable, match="accept its terms") as raised:
        catalog(tmp_path, place).ask("org/m")
    assert raised.value.reason is WeightsReason.GATED


def test_a_model_that_no_family_serves_says_why(hub: Hub, place: HubPlace, tmp_path: Path) -> None:
    hub.repos["org/m"] = files({"architectures": ["VitsModel"]})
    with pytest.raises(UnservedModel, match="'org/m' is a VitsModel, which no family serves"):
        catalog(tmp_path, place).ask("org/m")


@pytest.mark.parametrize(
    ("config", "weights", "need"),
    [
        ({**RERANKER, "auto_map": {"AutoModel": "own.Model"}}, "model.safetensors", "code of its own"),
        (RERANKER, "pytorch_model.bin", "weights in a pickle"),
    ],
)
def test_code_and_pickles_are_refused_unless_the_model_is_trusted(
    hub: Hub, place: HubPlace, tmp_path: Path, config: dict[str, Any], weights: str, need: str
) -> None:
    hub.repos["org/m"] = files(config, weights)
    with pytest.raises(ModelNotAllowed, match=need):
        catalog(tmp_path, place).ask("org/m")
    assert len(catalog(tmp_path, place, trusted=("org/m",)).ask("org/m").spec.source.needs) == 1


def test_without_the_hub_its_cache_serves(
    hub: Hub, place: HubPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repos["org/m"] = files(RERANKER)
    online = catalog(tmp_path, place).ask("org/m")
    Locator(endpoint=hub.endpoint, cache_dir=tmp_path / "cache").locate(online.spec)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    offline = catalog(tmp_path, place)
    for name in ("org/m", online.key):
        assert (offline.ask(name).key, offline.ask(name).spec.family) == (online.key, "cross_encoder")
    assert len(hub.asked) == asked


def test_a_hub_that_does_not_answer_leaves_a_name_unknown_and_is_left_alone(tmp_path: Path, hub: Hub) -> None:
    silent = HubPlace(endpoint="http://127.0.0.1:9", cache_dir=tmp_path / "cache", patience_s=1.0)
    live = catalog(tmp_path, silent)
    with pytest.raises(UnknownModel, match=r"not in the catalog.* The hub cannot be reached"):
        live.ask("org/m")
    with pytest.raises(WeightsUnavailable) as raised:
        live.ask(f"org/m@{COMMIT}")
    assert raised.value.retryable, "a job that names a revision was found before, and may be again"


def folder_model(root: Path, spelling: str, config: dict[str, Any] = RERANKER) -> Path:
    folder = root / spelling
    folder.mkdir(parents=True)
    for name, data in files(config).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("spelling", ["org/m", "org__m"])
def test_a_folder_is_found_by_name_and_its_revision_by_what_is_in_it(tmp_path: Path, spelling: str) -> None:
    folder = folder_model(tmp_path / "models", spelling)

    def ask(name: str) -> Choice:
        return catalog(tmp_path, FolderPlace(tmp_path / "models")).ask(name)

    choice = ask("org/m")
    assert choice.spec.source.path == str(folder)
    assert choice.key.startswith("org/m@local-")
    assert ask(choice.key) == choice
    (folder / "config.json").write_text(json.dumps({**RERANKER, "max_position_embeddings": 64}))
    assert ask("org/m").key != choice.key
    with pytest.raises(WeightsUnavailable, match="not those that the job was sent for"):
        ask(choice.key)


def test_a_place_that_cannot_be_read_says_so_and_breaks_nothing(tmp_path: Path) -> None:
    class Shut:
        def look(self, name: str, revision: str | None, /) -> None:
            raise PermissionError(13, "Permission denied")

    with pytest.raises(WeightsUnavailable, match="'org/m' cannot be read here: Permission denied"):
        catalog(tmp_path, Shut()).ask("org/m")


def test_what_breaks_a_search_is_told_to_whoever_asks_and_not_tried_again_at_once(tmp_path: Path) -> None:
    asked: list[str] = []

    class Broken:
        def look(self, name: str, revision: str | None, /) -> None:
            asked.append(name)
            raise ZeroDivisionError

    live = catalog(tmp_path, Broken())
    for _ in range(2):
        with pytest.raises(WeightsUnavailable, match="'org/m' cannot be understood: ZeroDivisionError"):
            live.ask("org/m")
    assert asked == ["org/m"]


def test_a_search_that_is_broken_off_leaves_the_name_free_for_the_next(tmp_path: Path) -> None:
    class Impatient:
        def look(self, name: str, revision: str | None, /) -> None:
            raise KeyboardInterrupt

    hub = HubModels([Impatient()])
    with pytest.raises(KeyboardInterrupt):
        hub.find("org/m")
    assert hub.searches == 0


def test_a_repository_full_of_configs_is_not_fetched_whole(hub: Hub, place: HubPlace, tmp_path: Path) -> None:
    hub.repos["org/m"] = {**files(RERANKER), **{f"a/config-{number}.json": b"%d" % number for number in range(200)}}
    assert catalog(tmp_path, place).ask("org/m").spec.family == "cross_encoder"
    assert len(hub.sent) == MOST_CONFIGS


def test_a_folder_comes_before_the_hub_and_a_yaml_before_both(hub: Hub, place: HubPlace, tmp_path: Path) -> None:
    hub.repos["org/m"] = files(RERANKER)
    folder_model(tmp_path / "models", "org/m")
    live = catalog(tmp_path, FolderPlace(tmp_path / "models"), place)
    assert live.ask("org/m").spec.source.hub is None
    yaml = "id: org/m\nfamily: fake\ntasks: {encode: {dims: 8}}\nparameters: 0\nmax_length: 16\n"
    (tmp_path / "none" / "m.yaml").write_text(yaml)
    live.refresh()
    assert live.ask("org/m").spec.family == "fake"
    assert hub.asked == []
