"""Generation by vLLM for large models on CUDA: it leases a part of the card, and the books count the lease.

vLLM batches by itself, in a process of its own that computes on whether others have the device or not; a step here
hears what has come. What it has for caches it shares out by itself. Images are not served.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from catalog.modelfolder import read_json, weight_files
from catalog.options import GenerateOptions
from catalog.schema import Spec
from engine.adapters.base import LoadOptions, Part, StepAdapter, TokenSequence
from engine.checkpoint import read_shape, read_weights
from engine.errors import DeviceLost, EngineError, ItemRejected, LoadFailed, LoadReason, ModelFailed, TextTooLong
from engine.failures import load_failure
from engine.generation.chat import Chat, conversation, flattened
from engine.generation.lora import lora_folder, slot_bytes
from engine.generation.sequences import Prompt
from engine.generation.vocabulary import Vocabulary
from engine.readings import text_of
from engine.torch_adapter import FLOAT_BYTES
from engine.types import Entry, Footprint, Outcome, Output
from engine.vllm_engine import BESIDE, WORKING, Opened, dead, open_engine, refusal, sampling_of


class VllmOptions(LoadOptions):
    """What vLLM gets, and how it runs the model.

    `bytes` is all it may take of the card. Left out: the weights, caches of `cache_share` times the weights or of one
    text of full length if that is more, LoRA slots, and room to work. At most `texts` are in a pass. `eager` records no
    graphs: a quicker start, slower steps.
    """

    bytes: Annotated[int, Field(ge=1)] | None = None
    dtype: Literal["float32", "float16", "bfloat16"] = "bfloat16"
    cache_share: Annotated[float, Field(gt=0, le=20, allow_inf_nan=False)] = 0.5
    texts: Annotated[int, Field(ge=1, le=1024)] = 64
    eager: bool = False
    lora_slots: Annotated[int, Field(ge=1, le=64)] = 4
    lora_rank: Literal[8, 16, 32, 64, 128, 256, 320, 512] = 64


class _Asked(TokenSequence):
    """A sequence with its request, once it was sent (`sent`), and how it ended, once it has."""

    def __init__(self, entry: Entry, prompt: Prompt, most: int, number: int, lora: Path | None) -> None:
        super().__init__(entry, len(prompt.ids), most)
        self.ids = prompt.ids
        self.opening = prompt.opening
        self.request = str(number)
        self.lora = lora
        self.sent = False
        self.outcome: Outcome | None = None

    @property
    def options(self) -> GenerateOptions:
        """Its job's options."""
        found: GenerateOptions = self.entry.work.options
        return found


class VllmAdapter(StepAdapter):
    """One model in vLLM."""

    options = VllmOptions

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, VllmOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        if folder is None:
            raise LoadFailed(f"{spec.id} needs a 'source' in its YAML to be of this family.", LoadReason.CONFIG)
        self._options = options
        self._folder = folder
        self._opened: Opened | None = None
        self._tokenizer: Any = None
        self._chat: Chat | None = None
        self._going: dict[str, _Asked] = {}
        self._numbers = count(1)
        self._loras = {name: number for number, name in enumerate(sorted(spec.loras), 1)}

    def footprint(self) -> Footprint:
        """The lease, whole: what is computed and cached is inside it."""
        given = self._options
        if given.bytes is not None:
            return Footprint(given.bytes)
        config = read_json(self._folder / "config.json")
        text, shape, size = config.get("text_config") or config, read_shape(config), FLOAT_BYTES[given.dtype]
        heads = int(text.get("num_key_value_heads") or text.get("num_attention_heads") or shape.heads)
        each = int(text.get("head_dim") or shape.hidden // max(1, shape.heads))
        weights = read_weights(weight_files(self._folder), size).bytes
        one = 2 * size * shape.layers * heads * each * self.spec.max_length
        slots = given.lora_slots * slot_bytes(self.spec.loras, given.lora_rank, shape, size) if self._loras else 0
        return Footprint(weights + max(int(weights * given.cache_share), one) + slots + WORKING + BESIDE)

    def load(self) -> None:
        """Start vLLM with the lease. Raises LoadFailed with its reason."""
        if not self.device.startswith("cuda"):
            message = f"{self.spec.id} is of the family vllm, which needs a CUDA card; this worker has {self.device}."
            raise LoadFailed(message, LoadReason.CONFIG)
        given = self._options
        arguments: dict[str, Any] = {
            "model": str(self._folder),
            "dtype": given.dtype,
            "max_model_len": self.spec.max_length,
            "max_num_seqs": given.texts,
            "enforce_eager": given.eager,
        }
        if self._loras:
            arguments |= {"enable_lora": True, "max_loras": given.lora_slots, "max_lora_rank": given.lora_rank}
        try:
            self._opened = open_engine(self.device, self.footprint().weights, arguments)
            self._read_tokenizer()
        except Exception as error:
            self.unload()
            raise load_failure(self.spec.id, error) from error

    def unload(self) -> None:
        """End vLLM's process; what it leased comes back with that."""
        opened, self._opened = self._opened, None
        self._tokenizer = self._chat = None
        self._going.clear()
        if opened is not None:
            opened.close()

    def held(self) -> int | None:
        """The lease: torch knows nothing of what another process has."""
        return 0 if self._opened is None else self.footprint().weights

    def join(self, entry: Entry) -> TokenSequence | EngineError:
        """The item's prompt as tokens, its LoRA fetched. vLLM hears of it when it is to read it."""
        options: GenerateOptions = entry.work.options
        prompt = self._prompt(entry, options)
        if isinstance(prompt, ItemRejected):
            return prompt
        ids = prompt.ids
        if not ids:
            return ItemRejected("The prompt is empty.")
        room = self.spec.max_length - len(ids)
        if room < 1:
            return TextTooLong(f"The prompt has {len(ids)} tokens; the model keeps {self.spec.max_length} in all.")
        try:
            lora = options.lora and lora_folder(options.lora, self.spec.loras[options.lora], fetch=True)
        except EngineError as error:
            return error
        return _Asked(entry, prompt, min(options.most(self.spec), room), next(self._numbers), lora or None)

    def step(self, parts: Sequence[Part]) -> Sequence[Outcome | None]:
        """Send what is to be read, then hear what has come, also of sequences that have no part in this step."""
        opened = self._opened
        if opened is None:
            raise RuntimeError("step before load")
        asked = [_own(part.sequence) for part in parts]
        try:
            for part, sequence in zip(parts, asked, strict=True):
                sequence.read += part.read
                if sequence.unread == 0 and not sequence.sent:
                    self._send(opened, sequence)
            if any(one.outcome is None for one in asked) and opened.engine.has_unfinished_requests():
                for told in opened.engine.step():
                    self._hear(told)
        except Exception as error:
            if dead(error):
                raise DeviceLost("vLLM's process has ended; the worker's process begins anew.") from error
            raise
        return [sequence.outcome for sequence in asked]

    def leave(self, sequence: TokenSequence) -> None:
        """Have its request end, if it goes on."""
        own = _own(sequence)
        if self._going.pop(own.request, None) is not None and self._opened is not None:
            self._opened.engine.abort_request([own.request])

    def _send(self, opened: Opened, sequence: _Asked) -> None:
        sequence.sent = True
        try:
            name, more = sequence.options.lora, {}
            if name is not None and sequence.lora is not None:
                more["lora_request"] = opened.lora(name, self._loras[name], sequence.lora)
            settings = opened.sampling(sampling_of(sequence.options, sequence.most, sequence.entry.item.index))
            opened.engine.add_request(sequence.request, {"prompt_token_ids": sequence.ids}, settings, **more)
        except Exception as error:
            if dead(error):
                raise
            sequence.outcome = refusal(self.spec.id, error)
        else:
            self._going[sequence.request] = sequence

    def _hear(self, told: Any) -> None:
        sequence = self._going.get(told.request_id)
        if sequence is None:
            # It has left, and its last word was on its way.
            return
        (said,) = told.outputs
        sequence.made = len(said.token_ids)
        text = sequence.opening + said.text
        if len(text) > len(sequence.said):
            sequence.said = text
        if not told.finished:
            return
        del self._going[sequence.request]
        if said.finish_reason not in ("stop", "length"):
            sequence.outcome = ModelFailed(f"vLLM ended the text: {said.finish_reason}.")
            return
        fields: dict[str, Any] = {"text": text, "finish_reason": said.finish_reason}
        if sequence.options.logprobs:
            # A stop text may have taken tokens back.
            pairs = zip(said.token_ids, said.logprobs or (), strict=False)
            fields["logprobs"] = [self._logprob(token, found, sequence.options.top_logprobs) for token, found in pairs]
        usage = {"prompt_tokens": sequence.prompt, "completion_tokens": sequence.made}
        sequence.outcome = Output(fields, tokens=sum(usage.values()), usage=usage)

    def _logprob(self, token: int, found: Any, top: int) -> dict[str, Any]:
        """One token's logprob with the likeliest `top`; `found` has both, by token, with their ranks from 1."""
        best = sorted((other for other in found if found[other].rank <= top), key=lambda other: found[other].rank)
        one = self._entry(token, found[token].logprob)
        return one | {"top_logprobs": [self._entry(other, found[other].logprob) for other in best]}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        raw = Vocabulary(self._tokenizer.backend_tokenizer, 0, ()).bytes_of(token)
        return {"token": raw.decode("utf-8", "replace"), "logprob": max(float(logprob), -9999.0), "bytes": list(raw)}

    def _prompt(self, entry: Entry, options: GenerateOptions) -> Prompt | ItemRejected:
        if self._chat is None:
            raise RuntimeError("join before load")
        payload = entry.item.payload
        templated = getattr(self._tokenizer, "chat_template", None) is not None
        if "messages" not in payload and (options.raw or not templated):
            text = text_of(payload)
            return text if isinstance(text, ItemRejected) else Prompt(self._chat.raw(text))
        if not templated:
            return ItemRejected("This model has no chat template: send a text.", param="messages")
        if options.raw:
            return ItemRejected("'raw' goes with a text, not with messages.", param="options.raw")
        messages = conversation(payload)
        turns = messages if isinstance(messages, ItemRejected) else flattened(messages)
        rendered = turns if isinstance(turns, ItemRejected) else self._chat.render(turns, options)
        if isinstance(rendered, ItemRejected):
            return rendered
        return Prompt(self._chat.ids(rendered), opening=rendered.opening if options.grammar is None else "")

    def _read_tokenizer(self) -> None:
        from transformers import AutoTokenizer

        found: Any = AutoTokenizer.from_pretrained(self._folder, local_files_only=True, trust_remote_code=False)
        if getattr(found, "backend_tokenizer", None) is None:
            raise LoadFailed(f"{self.spec.id} has no tokenizer.json, which this family needs.", LoadReason.CONFIG)
        self._tokenizer, self._chat = found, Chat(found)


def _own(sequence: TokenSequence) -> _Asked:
    if not isinstance(sequence, _Asked):
        raise TypeError("not a sequence of this family")
    return sequence
