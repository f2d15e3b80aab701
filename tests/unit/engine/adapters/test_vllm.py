"""The bookkeeping of the family vllm, on an engine that speaks the part of LLMEngine's protocol that is used.

It makes no text of a model: what it says is the prompt's tokens, backwards. vLLM itself has not run these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine.adapters.vllm as family
from catalog.options import GenerateOptions
from catalog.schema import GenerateFacts, LoraSource, Spec, Tasks
from catalog.terms import Lane, Verb
from engine.adapters.base import Part, TokenSequence
from engine.adapters.vllm import VllmAdapter, VllmOptions
from engine.errors import DeviceLost, EngineError, ItemRejected, LoadFailed, LoadReason, TextTooLong
from engine.types import Batch, Entry, Item, Outcome, Output, Work
from engine.vllm_engine import BESIDE, WORKING, Opened
from tests.small import folder

SPEC = Spec(
    id="random/qwen3",
    family="vllm",
    tasks=Tasks(generate=GenerateFacts(max_new_tokens=4)),
    parameters=0,
    max_length=64,
    inputs=("text", "messages"),
)


class EngineDeadError(Exception):
    """By its name, what vLLM raises once its core has ended."""


class Backwards:
    """An engine of vLLM's protocol: every step gives each of its texts one token more, the prompt's last one first."""

    def __init__(self) -> None:
        self.texts: dict[str, dict[str, Any]] = {}
        self.seen: list[dict[str, Any]] = []
        self.dead = self.closed = False

    def add_request(self, request_id: str, prompt: Any, params: Any, *, lora_request: Any = None) -> str:
        if params.get("structured_outputs", {}).get("regex") == "[":
            raise ValueError("The regex does not end.")
        ids = prompt["prompt_token_ids"]
        self.texts[request_id] = {"ids": ids, "params": params, "made": []}
        self.seen.append({"params": params, "lora": lora_request})
        return f"{request_id}-inside"

    def abort_request(self, request_ids: list[str]) -> None:
        for one in request_ids:
            del self.texts[one]

    def has_unfinished_requests(self) -> bool:
        return bool(self.texts)

    def step(self) -> list[Any]:
        if self.dead:
            raise EngineDeadError
        assert self.texts, "a step without texts would wait for ever"
        return [self._further(request) for request in list(self.texts)]

    def _further(self, request: str) -> Any:
        text = self.texts[request]
        made, most = text["made"], text["params"]["max_tokens"]
        made.append(text["ids"][-1 - len(made)])
        over = len(made) == min(most, len(text["ids"]))
        if over:
            del self.texts[request]
        ranks = {0: SimpleNamespace(logprob=-0.5, rank=1)}
        logprobs = [{token: SimpleNamespace(logprob=-1.0, rank=2), **ranks} for token in made]
        said = SimpleNamespace(
            text=" ".join(map(str, made)),
            token_ids=list(made),
            finish_reason=("length" if len(made) == most else "stop") if over else None,
            logprobs=logprobs if "logprobs" in text["params"] else None,
        )
        return SimpleNamespace(request_id=request, outputs=[said], finished=over)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backwards]:
    made = Backwards()

    def opened(device: str, lease: int, arguments: dict[str, Any]) -> Opened:
        def close() -> None:
            made.closed = True

        return Opened(made, dict, lambda name, number, where: (name, number, where), close)

    monkeypatch.setattr(family, "open_engine", opened)
    yield made
    assert not made.texts, "a text was left behind"


def adapter(spec: Spec = SPEC, device: str = "cuda:0", **load: Any) -> VllmAdapter:
    return VllmAdapter(spec, VllmOptions.model_validate(load), folder("tiny_qwen3"), device)


def loaded(spec: Spec = SPEC) -> VllmAdapter:
    found = adapter(spec)
    found.load()
    return found


def entry(payload: dict[str, Any], **options: Any) -> Entry:
    item = Item(0, payload, 8, 1.0)
    given = GenerateOptions.model_validate({"raw": "messages" not in payload, **options})
    return Entry(Work("w", "m", Verb.GENERATE, (item,), given, Lane.INTERACTIVE, 5, 0.0), item)


def joined(model: VllmAdapter, text: str, **options: Any) -> TokenSequence:
    found = model.join(entry({"text": text}, **options))
    assert isinstance(found, TokenSequence), found
    return found


def ended(model: VllmAdapter, sequence: TokenSequence) -> Outcome:
    for _ in range(20):
        (outcome,) = model.step([Part(sequence, sequence.unread)])
        if outcome is not None:
            model.leave(sequence)
            return outcome
    raise AssertionError("it did not end")


def test_a_text_is_told_as_it_comes_and_counted_at_its_end(engine: Backwards) -> None:
    model = loaded()
    sequence = joined(model, "a roost of owls", max_tokens=2)
    assert model.step([Part(sequence, 1)]) == [None], "nothing is sent before all is read"
    assert not engine.seen
    assert model.step([Part(sequence, sequence.unread)]) == [None]
    assert sequence.made == 1
    first = sequence.said
    assert first
    outcome = ended(model, sequence)
    assert isinstance(outcome, Output)
    assert outcome.fields["finish_reason"] == "length"
    assert outcome.fields["text"].startswith(first)
    assert outcome.usage == {"prompt_tokens": sequence.prompt, "completion_tokens": 2}
    assert outcome.tokens == sequence.prompt + 2


def test_what_comes_for_a_text_without_a_part_is_kept_for_its_next(engine: Backwards) -> None:
    model = loaded()
    one, other = joined(model, "one two three", max_tokens=2), joined(model, "four five six", max_tokens=2)
    assert model.step([Part(one, one.unread), Part(other, other.unread)]) == [None, None]
    assert isinstance(model.step([Part(one)])[0], Output)
    assert not engine.texts
    assert isinstance(model.step([Part(other)])[0], Output)
    for sequence in (one, other):
        model.leave(sequence)


def test_a_text_that_leaves_is_aborted_once_and_its_neighbour_goes_on(engine: Backwards) -> None:
    model = loaded()
    gone, kept = joined(model, "gone gone gone"), joined(model, "kept kept kept")
    never = joined(model, "it was never sent")
    model.step([Part(gone, gone.unread), Part(kept, kept.unread)])
    for sequence in (gone, gone, never):
        model.leave(sequence)
    assert len(engine.texts) == 1
    assert isinstance(ended(model, kept), Output)


def test_what_vllm_refuses_fails_alone(engine: Backwards) -> None:
    model = loaded()
    bad, good = joined(model, "bad", grammar={"regex": "["}), joined(model, "good", max_tokens=1)
    outcomes = model.step([Part(bad, bad.unread), Part(good, good.unread)])
    assert isinstance(outcomes[0], ItemRejected)
    assert isinstance(outcomes[1], Output)
    for sequence in (bad, good):
        model.leave(sequence)


def test_logprobs_come_with_the_likeliest_by_rank(engine: Backwards) -> None:
    model = loaded()
    outcome = ended(model, joined(model, "owl", max_tokens=1, logprobs=True, top_logprobs=1))
    assert isinstance(outcome, Output)
    (found,) = outcome.fields["logprobs"]
    assert found["logprob"] == -1.0
    assert bytes(found["bytes"]).decode() == found["token"]
    assert [one["logprob"] for one in found["top_logprobs"]] == [-0.5]


def test_a_lora_is_named_to_vllm_by_its_folder(engine: Backwards, tmp_path: Path) -> None:
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / file).write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{}")
    loras = {"claims": LoraSource(path=str(tmp_path)), "absent": LoraSource(path=str(tmp_path / "no"))}
    model = loaded(SPEC.model_copy(update={"loras": loras}))
    ended(model, joined(model, "owl", max_tokens=1, lora="claims"))
    assert engine.seen[0]["lora"] == ("claims", 2, tmp_path)
    refused = model.join(entry({"text": "owl"}, lora="absent"))
    assert isinstance(refused, LoadFailed)
    assert refused.reason is LoadReason.NOT_FOUND


@pytest.mark.parametrize(
    ("payload", "options", "error"),
    [
        ({}, {}, ItemRejected),
        ({"text": 7}, {}, ItemRejected),
        ({"messages": []}, {}, ItemRejected),
        ({"messages": [{"role": "user", "content": "hello"}]}, {"raw": True}, ItemRejected),
        ({"text": "too long " * 100}, {}, TextTooLong),
    ],
)
def test_an_item_that_cannot_be_read_is_refused_before_vllm_hears_of_it(
    engine: Backwards, payload: dict[str, Any], options: dict[str, Any], error: type[EngineError]
) -> None:
    assert isinstance(loaded().join(entry(payload, **options)), error)
    assert not engine.seen


def test_a_core_that_has_ended_is_a_lost_device(engine: Backwards) -> None:
    model = loaded()
    sequence = joined(model, "owl owl")
    engine.dead = True
    with pytest.raises(DeviceLost):
        model.step([Part(sequence, sequence.unread)])
    model.leave(sequence)


def test_the_books_count_the_lease_from_load_to_unload(engine: Backwards) -> None:
    model = adapter(bytes=6 * 2**30)
    assert model.footprint().weights == 6 * 2**30
    assert model.held() == 0
    model.load()
    assert model.held() == model.footprint().weights
    model.unload()
    assert engine.closed
    assert model.held() == 0


def test_a_lease_that_nobody_has_set_has_room_for_weights_and_caches() -> None:
    weights = sum(file.stat().st_size for file in folder("tiny_qwen3").glob("*.safetensors"))
    layers, heads, width = 3, 2, 16
    one = 2 * 4 * layers * heads * width * SPEC.max_length
    least = adapter(dtype="float32", cache_share=0.001).footprint().weights
    assert least - WORKING - BESIDE == pytest.approx(weights + one, rel=0.02)
    assert adapter(dtype="float32", cache_share=3).footprint().weights - least == pytest.approx(3 * weights, rel=0.1)
    assert adapter().footprint().cache_per_token == 0


def test_without_a_card_the_load_is_refused() -> None:
    with pytest.raises(LoadFailed, match="CUDA") as raised:
        adapter(device="cpu").load()
    assert raised.value.reason is LoadReason.CONFIG


def test_a_batch_from_beginning_to_end(engine: Backwards) -> None:
    model = loaded()
    entries = (entry({"text": "a b c"}), entry({}), entry({"messages": [{"role": "user", "content": "hi"}]}))
    found = model.run(Batch(1, "m", Verb.GENERATE, entries))
    assert [isinstance(one, Output) for one in found] == [True, False, True]
