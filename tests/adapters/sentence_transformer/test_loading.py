"""What this family declares before a load, and how a load that fails says why."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from catalog.loader import Catalog
from catalog.schema import Source
from catalog.weights import locate
from engine.adapters import sentence_transformer as family
from engine.adapters.base import Adapter
from engine.adapters.sentence_transformer import SentenceTransformerAdapter, SentenceTransformerOptions
from engine.embedder import Embedder
from engine.errors import LoadFailed, LoadReason
from engine.pretrained import read_embedder
from engine.types import Outcome, Output

Run = Callable[..., list[Outcome]]
Tiny = Callable[..., SentenceTransformerAdapter]
Vector = Callable[[Outcome], NDArray[np.float32]]


def test_half_types_take_half(layouts: dict[str, Path], tiny: Tiny, run: Run, vector: Vector) -> None:
    whole = tiny(layouts["normalised"])
    half = tiny(layouts["normalised"], dtype="bfloat16")
    assert half.footprint().weights * 2 == whole.footprint().weights
    whole.load()
    half.load()
    assert half.held() == pytest.approx(half.footprint().weights, rel=0.05)
    assert float(vector(run(whole, ["cab bag"])[0]) @ vector(run(half, ["cab bag"])[0])) > 0.99


def test_a_token_takes_what_the_load_on_a_card_measured(
    layouts: dict[str, Path], tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tiny(layouts["normalised"], padding="always")
    there = SentenceTransformerAdapter(here.spec, here.load_options, layouts["normalised"], "cuda")
    embed = Embedder.embed
    monkeypatch.setattr(family, "read_embedder", lambda name, files, _, *more: read_embedder(name, files, "cpu", *more))
    monkeypatch.setattr(Embedder, "embed", lambda self, rows, _: embed(self, rows, "cpu"))
    monkeypatch.setattr(family, "measured_activations", lambda *_: 777)
    estimate = there.footprint().per_token
    assert there.measured_per_token() is None
    there.load()
    here.load()
    assert there.measured_per_token() == there.footprint().per_token == 777 != estimate
    assert here.measured_per_token() is None


def test_the_footprint_needs_no_torch(layouts: dict[str, Path]) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from catalog.loader import Catalog\n"
        "from engine.adapters.sentence_transformer import SentenceTransformerAdapter as A\n"
        "spec = Catalog.load().find('all-MiniLM-L6-v2').spec\n"
        "assert A(spec, A.options(), Path(sys.argv[1]), 'cpu').footprint().weights > 10_000\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(layouts["raw"])]).returncode == 0


PEAK = """
import sys
import torch
from pathlib import Path
from catalog.tokenizer import Tokens
from engine.device import CpuDevice
from engine.pretrained import read_embedder

def peak():
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) * 1024

torch.set_num_threads(1)
embedder = read_embedder("m", Path(sys.argv[1]), "cpu", "float32", "sdpa")
rows = [Tokens([101, *[2000] * (length - 2), 102], [0] * length, 1, 1) for length in (256, *[250] * 11)]
embedder.embed(rows[:1], "cpu")
CpuDevice().clear()
Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
before = peak()
embedder.embed(rows, "cpu")
print((peak() - before) / (12 * 256))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak and lets it start again")
def test_a_tokens_declared_activations_bound_what_is_measured() -> None:
    spec = Catalog.load().find("all-MiniLM-L6-v2").spec
    folder = locate(spec.model_copy(update={"source": Source(package=spec.source.package)}))
    done = subprocess.run([sys.executable, "-c", PEAK, str(folder)], capture_output=True, text=True, check=True)
    declared = SentenceTransformerAdapter(spec, SentenceTransformerOptions(), folder, "cpu").footprint().per_token
    assert declared * 0.5 < float(done.stdout) < declared * 1.1


@pytest.mark.parametrize(("name", "longest"), [("normalised", 32), ("roberta", 32)])
def test_the_longest_text_runs_and_a_longer_promise_is_refused(
    load: Callable[..., Adapter], run: Run, name: str, longest: int
) -> None:
    outcome = run(load(name, max_length=longest), ["a " * 100])[0]
    assert isinstance(outcome, Output)
    with pytest.raises(LoadFailed, match=f"reads {longest} tokens") as raised:
        load(name, max_length=longest + 1)
    assert raised.value.reason is LoadReason.CONFIG


Spoil = Callable[[Path], object]


def _edit(name: str, **changes: object) -> Spoil:
    def edit(folder: Path) -> None:
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(config | changes))

    return edit


def _cut_short(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


def _foreign_module(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "os.path.join"
    (folder / "modules.json").write_text(json.dumps(modules))


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _own_code(folder: Path) -> None:
    _edit("config.json", auto_map={"AutoModel": "evil.Model", "AutoConfig": "evil.Config"}, model_type="evil")(folder)
    (folder / "evil.py").write_text("raise SystemExit('ran')")


@pytest.mark.parametrize(
    ("spoil", "reason", "says"),
    [
        (_cut_short, LoadReason.CORRUPT, "cut short"),
        (lambda f: (f / "model.safetensors").write_bytes(b"not tensors at all"), LoadReason.CORRUPT, "cut short"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), LoadReason.CORRUPT, "cut short"),
        (lambda f: (f / "model.safetensors").unlink(), LoadReason.NOT_FOUND, "no safetensors"),
        (_pickled, LoadReason.NOT_FOUND, "pickled ones are not loaded"),
        (lambda f: (f / "config.json").write_text("{"), LoadReason.CORRUPT, "not valid JSON"),
        (_edit("config.json", model_type="not-a-model-type"), LoadReason.DEPENDENCY, "upgrade"),
        (_edit("config.json", num_hidden_layers=3), LoadReason.CORRUPT, "weights"),
        (_own_code, LoadReason.CONFIG, "code of its own"),
        (_foreign_module, LoadReason.CONFIG, "code of its own"),
        (lambda f: (f / "1_Pooling" / "config.json").unlink(), LoadReason.NOT_FOUND, "lacks 1_Pooling/config.json"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), LoadReason.CORRUPT, "tokenizer that cannot be read"),
        (lambda f: (f / "tokenizer.json").unlink(), LoadReason.NOT_FOUND, "has no tokenizer"),
        (_edit("config.json", hidden_size="x"), LoadReason.UNKNOWN, "hidden_size"),
        (_edit("config.json", num_attention_heads=5), LoadReason.CONFIG, "attention heads"),
        (_edit("config.json", vocab_size=61), LoadReason.CORRUPT, "do not fit its config"),
        (lambda f: (f / "modules.json").write_text("["), LoadReason.CORRUPT, "JSON"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(
    layouts: dict[str, Path], tiny: Tiny, tmp_path: Path, spoil: Spoil, reason: LoadReason, says: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(layouts["normalised"], folder)
    spoil(folder)
    adapter = tiny(folder)
    with pytest.raises(LoadFailed, match=says) as raised:
        adapter.load()
    assert raised.value.reason is reason
    assert adapter.held() is None


def test_a_yaml_with_the_wrong_dims_is_refused(layouts: dict[str, Path], tiny: Tiny) -> None:
    with pytest.raises(LoadFailed, match="gives 32 dimensions; its YAML says 31") as raised:
        tiny(layouts["normalised"], dims=31).load()
    assert raised.value.reason is LoadReason.CONFIG


def test_a_spec_without_files_is_refused(tiny: Tiny) -> None:
    with pytest.raises(LoadFailed, match="source"):
        tiny(None)
