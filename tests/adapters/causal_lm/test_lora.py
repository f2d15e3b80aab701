"""LoRA adapters of random weights, against peft's own generate."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from catalog.options.generate import GenerateOptions
from catalog.schema import LoraSource
from catalog.terms import Verb
from engine.adapters.base import Part, TokenSequence
from engine.errors import LoadFailed
from engine.generation.lora import Loras
from engine.types import Output
from tests.adapters.causal_lm.conftest import answers, decoder, outcomes
from tests.adapters.conftest import batch
from tests.small import folder

TEXT = "What is a roost?"
NAMES = ("claims-v1.0", "birds", "plain")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoraSource]:
    """Three adapters of different ranks and places."""
    found = {}
    for number, name in enumerate(NAMES):
        torch.manual_seed(number)
        base = AutoModelForCausalLM.from_pretrained(folder("tiny_qwen3"))
        targets = ["q_proj", "v_proj"] if number else ["k_proj", "o_proj", "down_proj"]
        config = LoraConfig(r=4 * (number + 1), lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM")
        made = get_peft_model(base, config)
        for path, parameter in made.named_parameters():
            if "lora_B" in path:
                torch.nn.init.normal_(parameter, std=0.5)
        place = tmp_path_factory.mktemp(f"lora{number}")
        made.save_pretrained(str(place))
        found[name] = LoraSource(path=str(place))
    return found


def expected(source: LoraSource) -> str:
    where = folder("tiny_qwen3")
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(where), str(source.path)).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(where)
    turns = [{"role": "user", "content": TEXT}]
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    made = model.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids["input_ids"].shape[1] :]
    return re.sub("\ufffd{1,3}$", "", str(tokenizer.decode(made, skip_special_tokens=True)))


def test_each_adapter_answers_as_pefts_own_and_side_by_side(sources: dict[str, LoraSource]) -> None:
    adapter = decoder("tiny_qwen3", sources, lora_slots=3, lora_rank=16)
    declared = adapter.footprint().weights
    adapter.load()
    (bare,) = answers(adapter, [TEXT])
    found = answers(adapter, [TEXT] * 4, {}, *({"lora": name} for name in NAMES))
    again = answers(adapter, [TEXT] * 4, *({"lora": name} for name in reversed(NAMES)), {})
    held = adapter.held()
    assert held is not None
    assert held * 0.95 <= declared <= held * 1.05
    adapter.unload()
    texts = [one.fields["text"] for one in found]
    assert texts == [bare.fields["text"], *(expected(sources[name]) for name in NAMES)]
    assert len(set(texts)) == 4
    assert again == found[::-1]


def test_with_one_slot_they_take_turns(sources: dict[str, LoraSource]) -> None:
    adapter = decoder("tiny_qwen3", sources, lora_slots=1)
    adapter.load()
    single = [answers(adapter, [TEXT], {"lora": name})[0] for name in NAMES]
    together = answers(adapter, [TEXT] * 3, *({"lora": name} for name in NAMES))
    adapter.unload()
    assert together == single
    assert len({one.fields["text"] for one in single}) == 3


def test_one_that_leaves_early_frees_its_slot(sources: dict[str, LoraSource]) -> None:
    adapter = decoder("tiny_qwen3", sources, lora_slots=1)
    adapter.load()
    own = [GenerateOptions(lora="birds"), GenerateOptions(lora="plain", max_tokens=2)]
    sequences = [adapter.join(one) for one in batch(Verb.GENERATE, [{"text": TEXT}] * 2, own).entries]
    birds, plain = [one for one in sequences if isinstance(one, TokenSequence)]
    adapter.step([Part(birds, birds.unread)])
    assert adapter.step([Part(plain, plain.unread)]) == [None]
    assert plain.read == 0
    adapter.leave(birds)
    while not isinstance(outcome := adapter.step([Part(plain, plain.unread)])[0], Output):
        assert outcome is None
    adapter.leave(plain)
    adapter.unload()
    assert plain.made == 2


def test_one_that_is_missing_or_does_not_fit_fails_alone(sources: dict[str, LoraSource], tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    for file in Path(str(sources["birds"].path)).iterdir():
        (strange / file.name).write_bytes(file.read_bytes())
    config = json.loads((strange / "adapter_config.json").read_text())
    (strange / "adapter_config.json").write_text(json.dumps({**config, "r": 3}))
    broken = {"gone": LoraSource(path=str(tmp_path / "gone")), "strange": LoraSource(path=str(strange))}
    adapter = decoder("tiny_qwen3", {**sources, **broken})
    adapter.load()
    gone, wrong, right, bare = outcomes(
        adapter, [TEXT] * 4, {"lora": "gone"}, {"lora": "strange"}, {"lora": "birds"}, {}
    )
    assert isinstance(gone, LoadFailed)
    assert isinstance(wrong, LoadFailed)
    assert isinstance(right, Output)
    assert right.fields["text"] == expected(sources["birds"])
    assert isinstance(bare, Output)
    assert bare == answers(adapter, [TEXT])[0]
    adapter.unload()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("megatron_config", {"tensor_model_parallel_size": 1}),
        ("megatron_core", "os.path"),
        ("init_lora_weights", "pissa"),
        ("layer_replication", [[0, 1], [0, 1]]),
        ("a_setting_of_tomorrow", 3),
    ],
)
def test_a_setting_that_is_not_known_to_be_harmless_is_refused_by_name(
    sources: dict[str, LoraSource], tmp_path: Path, key: str, value: object
) -> None:
    for file in Path(str(sources["birds"].path)).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, key: value}))
    loras = Loras(None, {"own": LoraSource(path=str(tmp_path))}, 1, 2**30, torch.float32)
    with pytest.raises(LoadFailed, match=key):
        loras.read("own")
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "a_setting_of_tomorrow": None}))
    assert loras.read("own") is not None
