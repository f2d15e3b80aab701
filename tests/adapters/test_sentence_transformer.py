"""What the contract does not say of this family, on tiny models of random weights: they prove plumbing, not quality."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from catalog.loader import Catalog
from catalog.options import EncodeOptions, OutputDtype
from catalog.schema import Source, Spec
from catalog.tokenizer import Tokens
from catalog.weights import locate
from engine.adapters.base import Adapter
from engine.adapters.sentence_transformer import SentenceTransformerAdapter, SentenceTransformerOptions
from engine.embedder import Embedder
from engine.errors import LoadFailed, LoadReason, OutOfMemory, TextTooLong
from engine.types import Outcome, Output

Run = Callable[..., list[Outcome]]
Vector = Callable[[Outcome], NDArray[np.float32]]

TEXTS = ["ab", "a b c d e f g h", "cab bag", "bead face"]
LETTERS = "abcdefgh"


def wordpiece(folder: Path, **more: Any) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS), *"[]<>/sclep|:"]
    words += [f"##{c}" for c in "clsepmask"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(dict.fromkeys(words))}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # the library has no types there
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=32,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **more,
    ).save_pretrained(folder)


def unigram(folder: Path) -> None:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(c, -6.0) for c in LETTERS + "<>/s"]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # the library has no types there
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=32,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 60,
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of one tiny model of each layout, as the library saves them."""
    torch.manual_seed(11)
    root = tmp_path_factory.mktemp("layouts")
    for name, more in (("bert", {}), ("left", {"padding_side": "left", "truncation_side": "left"})):
        BertModel(BertConfig(max_position_embeddings=32, **SIZES)).save_pretrained(root / f"{name}-base")
        wordpiece(root / f"{name}-base", **more)
    XLMRobertaModel(XLMRobertaConfig(max_position_embeddings=34, pad_token_id=1, **SIZES)).save_pretrained(
        root / "roberta-base"
    )
    unigram(root / "roberta-base")
    made: dict[str, Path] = {}

    def save(name: str, base: str, *modules: torch.nn.Module) -> None:
        model = SentenceTransformer(modules=[Transformer(str(root / f"{base}-base")), *modules], device="cpu")
        model.save(str(root / name), create_model_card=False)
        made[name] = root / name

    save("normalised", "bert", Pooling(32, "mean"), Normalize())
    save("raw", "bert", Pooling(32, "cls"))
    save("dense", "bert", Pooling(32, "mean"), Dense(32, 16))
    save("last", "left", Pooling(32, "lasttoken"), Normalize())
    save("skips", "bert", Pooling(32, "mean", include_prompt=False), Normalize())
    save("roberta", "roberta", Pooling(32, "mean"), Normalize())
    return made


def spec_of(dims: int = 32, max_length: int = 32) -> Spec:
    return Spec.model_validate(
        {
            "id": "tests/tiny-random",
            "family": "sentence_transformer",
            "source": {"path": "/given/to/the/adapter"},
            "tasks": {"encode": {"dims": dims, "prompts": {"query": "ab: ", "long": "a b c d: "}}},
            "parameters": 1,
            "max_length": max_length,
        }
    )


def adapter_of(folder: Path, device: str = "cpu", **facts: int) -> SentenceTransformerAdapter:
    return SentenceTransformerAdapter(spec_of(**facts), SentenceTransformerOptions(), folder, device)


@pytest.fixture(scope="module")
def load(layouts: dict[str, Path], device: str) -> Callable[..., Adapter]:
    """A loaded adapter of a layout, loaded once for all tests."""
    loaded: dict[tuple[object, ...], Adapter] = {}

    def load_layout(name: str, **facts: int) -> Adapter:
        key = (name, *sorted(facts.items()))
        if key not in loaded:
            adapter = adapter_of(layouts[name], device, **facts)
            adapter.load()
            loaded[key] = adapter
        return loaded[key]

    return load_layout


def library(folder: Path, texts: list[str], **more: Any) -> NDArray[np.float32]:
    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(texts, **more), dtype=np.float32)


@pytest.mark.parametrize("name", ["normalised", "last", "roberta", "skips"])
def test_every_layout_equals_the_library(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str
) -> None:
    got = np.stack([vector(outcome) for outcome in run(load(name), TEXTS)])
    assert np.abs(got - library(layouts[name], TEXTS)).max() < 1e-5


@pytest.mark.parametrize(("name", "dims"), [("raw", 32), ("dense", 16)])
def test_a_model_that_does_not_normalise_is_raw_on_request(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str, dims: int
) -> None:
    got = np.stack([vector(o) for o in run(load(name, dims=dims), TEXTS, EncodeOptions(normalize=False))])
    assert np.abs(got - library(layouts[name], TEXTS)).max() < 1e-5


def test_a_model_that_normalises_gives_raw_vectors_too(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector
) -> None:
    model = SentenceTransformer(str(layouts["normalised"]), device="cpu")
    with torch.inference_mode():
        features = model[1](model[0](model.preprocess(TEXTS)))
    expected = features["sentence_embedding"].numpy()
    got = np.stack([vector(o) for o in run(load("normalised"), TEXTS, EncodeOptions(normalize=False))])
    assert np.abs(got - expected).max() < 1e-5
    assert np.abs(np.linalg.norm(got, axis=1) - 1).min() > 1e-3


def test_an_instruction_is_put_before_the_text(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector
) -> None:
    got = np.stack([vector(o) for o in run(load("normalised"), TEXTS, EncodeOptions(instruction="bad cab: "))])
    assert np.abs(got - library(layouts["normalised"], TEXTS, prompt="bad cab: ")).max() < 1e-5


@pytest.mark.parametrize("name", ["normalised", "skips"])
def test_items_of_one_batch_have_their_own_prompts(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str
) -> None:
    options = [
        EncodeOptions(prompt="query"),
        EncodeOptions(),
        EncodeOptions(prompt="long"),
        EncodeOptions(prompt="query"),
    ]
    got = [vector(outcome) for outcome in run(load(name), TEXTS, options)]
    for text, own, vec in zip(TEXTS, options, got, strict=True):
        prompt = {"query": "ab: ", "long": "a b c d: ", None: None}[own.prompt]
        assert np.abs(vec - library(layouts[name], [text], prompt=prompt)[0]).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("normalised", "[CLS] [SEP]"),
        ("normalised", "[SEP][SEP][SEP]"),
        ("normalised", "a [MASK] b"),
        ("last", "[PAD] [SEP]"),
        ("skips", "[SEP] a"),
        ("roberta", "a </s> b"),
        ("roberta", "<s></s></s>"),
    ],
)
@pytest.mark.parametrize(
    "options", [EncodeOptions(), EncodeOptions(instruction="[SEP] </s> "), EncodeOptions(prompt="long")]
)
def test_no_control_token_reaches_the_model_but_its_template(
    load: Callable[..., Adapter],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    options: EncodeOptions,
) -> None:
    control = {0, 1, 2} if name == "roberta" else {0, 2, 3, 4}
    adapter = load(name)
    embed = Embedder.embed
    fed: list[Tokens] = []

    def watch(self: Embedder, rows: Sequence[Tokens], device: str, prompt: int = 0) -> NDArray[np.float32]:
        fed.extend(rows)
        return embed(self, rows, device, prompt)

    monkeypatch.setattr(Embedder, "embed", watch)
    outcomes = run(adapter, [text, "a" + text + "b " * 40], options)
    assert all(isinstance(outcome, Output) for outcome in outcomes)
    assert len(fed) == 2
    for row in fed:
        assert control.isdisjoint(row.ids[1:-1])


def test_a_cut_text_tells_how_long_it_was(load: Callable[..., Adapter], run: Run) -> None:
    outcome = run(load("normalised"), ["a " * 100])[0]
    assert isinstance(outcome, Output)
    assert (outcome.tokens, outcome.truncated) == (102, True)


def test_a_refusal_for_length_gives_both_counts(load: Callable[..., Adapter], run: Run) -> None:
    outcome = run(load("normalised"), ["a " * 100], EncodeOptions(truncate=False))[0]
    assert isinstance(outcome, TextTooLong)
    assert "102" in outcome.message
    assert "32" in outcome.message


@pytest.mark.parametrize("name", ["normalised", "last", "roberta"])
def test_a_cut_text_equals_the_librarys_cut(
    load: Callable[..., Adapter], layouts: dict[str, Path], run: Run, vector: Vector, name: str
) -> None:
    text = "a b c d e f g h " * 20
    got = vector(run(load(name), [text])[0])
    assert np.abs(got - library(layouts[name], [text])[0]).max() < 1e-5


def test_small_integers_keep_the_direction(load: Callable[..., Adapter], run: Run, vector: Vector) -> None:
    adapter = load("normalised")
    exact = vector(run(adapter, ["cab bag"])[0])
    outcome = run(adapter, ["cab bag"], EncodeOptions(output_dtype=OutputDtype.INT8))[0]
    assert isinstance(outcome, Output)
    small = np.frombuffer(outcome.fields["dense"]["values"], dtype=np.int8).astype(np.float32)
    assert float(exact @ small) / float(np.linalg.norm(small)) > 0.999


def test_a_batch_that_does_not_fit_is_out_of_memory(
    load: Callable[..., Adapter], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = load("normalised")

    def embed(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Embedder, "embed", embed)
    with pytest.raises(OutOfMemory, match="2 texts"):
        run(adapter, ["a", "b"])


def test_half_types_take_half(layouts: dict[str, Path], device: str, run: Run, vector: Vector) -> None:
    whole = adapter_of(layouts["normalised"], device)
    half = SentenceTransformerAdapter(
        spec_of(), SentenceTransformerOptions(dtype="bfloat16"), layouts["normalised"], device
    )
    assert half.footprint().weights * 2 == whole.footprint().weights
    whole.load()
    half.load()
    assert half.held() == pytest.approx(half.footprint().weights, rel=0.05)
    assert float(vector(run(whole, ["cab bag"])[0]) @ vector(run(half, ["cab bag"])[0])) > 0.99


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
import resource, sys
import psutil, torch
from pathlib import Path
from catalog.loader import Catalog
from catalog.tokenizer import Tokens
from engine.device import CpuDevice
from engine.embedder import read_embedder
torch.set_num_threads(1)
embedder = read_embedder("m", Path(sys.argv[1]), "cpu", "float32", "sdpa")
rows = [Tokens([101, *[2000] * (length - 2), 102], [0] * length, 1, 1) for length in (256, *[250] * 23)]
embedder.embed(rows[:1], "cpu")
CpuDevice().clear()
before = psutil.Process().memory_info().rss
embedder.embed(rows, "cpu")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / (24 * 256))
"""


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
    layouts: dict[str, Path], tmp_path: Path, spoil: Spoil, reason: LoadReason, says: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(layouts["normalised"], folder)
    spoil(folder)
    adapter = adapter_of(folder)
    with pytest.raises(LoadFailed, match=says) as raised:
        adapter.load()
    assert raised.value.reason is reason
    assert adapter.held() is None


def test_a_yaml_with_the_wrong_dims_is_refused(layouts: dict[str, Path]) -> None:
    with pytest.raises(LoadFailed, match="gives 32 dimensions; its YAML says 31") as raised:
        adapter_of(layouts["normalised"], dims=31).load()
    assert raised.value.reason is LoadReason.CONFIG


def test_a_spec_without_files_is_refused() -> None:
    with pytest.raises(LoadFailed, match="source"):
        SentenceTransformerAdapter(spec_of(), SentenceTransformerOptions(), None, "cpu")
