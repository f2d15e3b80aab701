"""What vLLM is told: how much of a card it may take, how a text is generated, and when it is to go.

vLLM takes a share of the whole card at its start and keeps it; that share is made of the bytes that it was granted.
Its core is a process of its own, so that all of it comes back when that ends. Written for vLLM 0.33.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from catalog.options import GenerateOptions
from catalog.options.generate import Grammar
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason
from engine.orphans import Guard
from engine.runner import of_item

BESIDE = 2**30
"""Bytes that the core's process takes of a card and does not count: the driver's context, libraries. Not measured."""

WORKING = 2 * 2**30
"""Bytes for what it does count besides weights and caches: activations, recorded graphs. Not measured."""

_INSTALL = "This family needs the package vllm and a CUDA card: pip install 'roost[vllm]'."


class TextEngine(Protocol):
    """The calls of vLLM's LLMEngine that are used."""

    def add_request(self, request_id: str, prompt: Any, params: Any, *, lora_request: Any = None) -> object:
        """Take one more text. Raises where it cannot be."""

    def abort_request(self, request_ids: list[str]) -> None:
        """End these."""

    def has_unfinished_requests(self) -> bool:
        """Whether a step would give anything."""

    def step(self) -> Sequence[Any]:
        """What has come of texts, each with all of it until now."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An engine that runs. `sampling` and `lora` make its own objects of plain settings; `close` ends its process."""

    engine: TextEngine
    sampling: Callable[[Mapping[str, Any]], Any]
    lora: Callable[[str, int, Path], Any]
    close: Callable[[], None]


def share(lease: int, total: int) -> float:
    """The part of a card of `total` bytes that vLLM is told to take, of a lease that holds what it does not count too.

    Rounded down. Raises LoadFailed where that is nothing, or more than there is.
    """
    found = math.floor((lease - BESIDE) / total * 10_000) / 10_000
    if not 0 < found <= 1:
        message = f"A lease of {lease} bytes is no part of a card of {total} bytes; set the load option 'bytes'."
        raise LoadFailed(message, LoadReason.CONFIG)
    return found


def sampling_of(options: GenerateOptions, most: int, place: int = 0) -> dict[str, Any]:
    """The settings of a text, by vLLM's names, for at most `most` new tokens; all else as vLLM has it.

    `place` is that of the item in its job.
    """
    found: dict[str, Any] = {
        "max_tokens": most,
        "min_tokens": min(options.min_tokens, most),
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k or 0,
        "frequency_penalty": options.frequency_penalty,
        "presence_penalty": options.presence_penalty,
        "repetition_penalty": options.repetition_penalty,
        "stop": list(options.stops),
    }
    seed = options.seed_at(place)
    if seed is not None:
        found["seed"] = seed % 2**63
    if options.logit_bias:
        found["logit_bias"] = {int(token): bias for token, bias in options.logit_bias.items()}
    if options.logprobs:
        found["logprobs"] = options.top_logprobs
    if options.grammar is not None:
        found["structured_outputs"] = structured(options.grammar)
    return found


def structured(grammar: Grammar) -> dict[str, Any]:
    """What the output is locked to, by vLLM's names: always exactly one."""
    if grammar.json_schema is not None:
        # It reads no schema but an object: `true` is the one that takes all.
        return {"json": json.dumps({} if grammar.json_schema is True else grammar.json_schema)}
    if grammar.choice is not None:
        return {"choice": list(grammar.choice)}
    return {"regex": grammar.regex} if grammar.regex is not None else {"grammar": grammar.lark}


def refusal(name: str, error: Exception) -> EngineError:
    """The error of an item that vLLM did not take: the caller's fault by vLLM's word, or else the model's."""
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"VLLMClientError", "ValueError"}:
        said = (str(error).strip().splitlines() or [""])[0]
        return ItemRejected(f"vLLM refused the item: {said[:300]}")
    return of_item(error, name)


def dead(error: BaseException) -> bool:
    """Whether the core's process has ended."""
    return any(base.__name__ == "EngineDeadError" for base in type(error).__mro__)


def open_engine(device: str, lease: int, arguments: Mapping[str, Any]) -> Opened:
    """Start vLLM on a card with so many bytes. `arguments` go to its EngineArgs. Raises LoadFailed, or what vLLM does.

    vLLM's reports about its use are turned off, unless the worker's environment says otherwise.
    """
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        from vllm import EngineArgs, LLMEngine, SamplingParams
        from vllm.config import StructuredOutputsConfig
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import StructuredOutputsParams
    except ImportError as error:
        raise LoadFailed(f"{_INSTALL} ({str(error)[:200]})", LoadReason.DEPENDENCY) from error
    import torch

    index = int(device.partition(":")[2] or 0)
    # vLLM looks at what the driver has free, so what torch keeps unused here would be missing.
    torch.cuda.empty_cache()
    total = int(torch.cuda.mem_get_info(index)[1])
    more: dict[str, Any] = {"device_ids": [index]} if index else {}
    engine = LLMEngine.from_engine_args(
        EngineArgs(
            **arguments,
            **more,
            gpu_memory_utilization=share(lease, total),
            structured_outputs_config=StructuredOutputsConfig(backend="guidance", disable_any_whitespace=True),
            trust_remote_code=False,
            load_format="safetensors",
            disable_log_stats=True,
        ),
        enable_multiprocessing=True,
    )

    def sampling(settings: Mapping[str, Any]) -> Any:
        own = dict(settings)
        if "structured_outputs" in own:
            own["structured_outputs"] = StructuredOutputsParams(**own["structured_outputs"])
        return SamplingParams(**own)

    def lora(name: str, number: int, folder: Path) -> Any:
        return LoRARequest(name, number, str(folder))

    # vLLM's process would stay behind, with all it has of the card, if this one were killed.
    core = engine.engine_core
    guard = Guard([process.pid for process in core.resources.engine_manager.processes])

    def close() -> None:
        core.shutdown()
        guard.close()

    return Opened(engine, sampling, lora, close)
