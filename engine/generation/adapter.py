"""What families of generating torch models have in common: a sequence's life from join to leave, step by step.

A family says how its library reads a folder and an item (`read_parts`, `prompt_of`); the rest is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from catalog.modelfolder import missing_weights, read_json, weight_files
from catalog.options.generate import GenerateOptions
from catalog.schema import Spec
from engine.adapters.base import LoadOptions, Part, StepAdapter, TokenSequence
from engine.checkpoint import read_weights
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite, TextTooLong
from engine.generation.grammars import Grammars, Lock
from engine.generation.lora import Lora, Loras, slot_bytes
from engine.generation.telling import Telling
from engine.generation.vocabulary import Vocabulary
from engine.pretrained import classified
from engine.torch_adapter import FLOAT_BYTES, TorchAdapter, TorchOptions, module_bytes
from engine.types import Entry, Footprint, Outcome, Output

if TYPE_CHECKING:
    import torch

    from engine.generation.decoding import Decoder, Memory
    from engine.generation.sampling import Sampler


class GenerationOptions(TorchOptions):
    """How the weights are held, and how many LoRA adapters may be on the device at once.

    A slot holds an adapter of `lora_rank`, or the largest of the model's adapters that is on this machine.
    """

    lora_slots: Annotated[int, Field(ge=1, le=64)] = 4
    lora_rank: Annotated[int, Field(ge=1, le=1024)] = 64


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's tokens, and what else the model reads with them, such as an image's pixels."""

    ids: list[int]
    beside: Mapping[str, Any] = field(default_factory=dict)


class GeneratedSequence(TokenSequence):
    """One item that is being generated."""

    def __init__(
        self,
        entry: Entry,
        prompt: Prompt,
        most: int,
        *,
        memory: Memory,
        sampler: Sampler,
        telling: Telling,
        lock: Lock | None,
        read_lora: Lora | None,
    ) -> None:
        super().__init__(entry, len(prompt.ids), most)
        self.prompted = prompt
        self.memory: Memory | None = memory
        self.sampler = sampler
        self.telling = telling
        self.lock = lock
        self.read_lora = read_lora
        self.fed = 0
        self.last = -1
        self.logprobs: list[dict[str, Any]] = []
        self.in_slot = False

    @property
    def options(self) -> GenerateOptions:
        """Its job's options."""
        return options_of(self.entry)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a loaded model generates with. `reserved` are the bytes of its weights and of all LoRA slots."""

    decoder: Decoder
    vocabulary: Vocabulary
    grammars: Grammars
    loras: Loras
    reserved: int


class GenerationAdapter(TorchAdapter, StepAdapter):
    """A generating model whose weights are one torch module."""

    options = GenerationOptions

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, GenerationOptions):
            raise TypeError(f"{type(options).__name__} are not the options of a model that generates")
        self._lora_options = options
        self._loaded: Loaded | None = None

    @property
    def loaded(self) -> Loaded:
        """What the model generates with, after `load`."""
        if self._loaded is None:
            raise RuntimeError("a step before load")
        return self._loaded

    @abstractmethod
    def read_parts(self) -> torch.nn.Module:
        """The module, with what else is needed kept on the adapter. What the library raises is told by its kind."""

    def read(self) -> torch.nn.Module:
        """As `read_parts`. Raises LoadFailed with its reason."""
        lacking = missing_weights(self.files)
        if lacking is not None:
            raise LoadFailed(f"{self.files} {lacking}. Fetch the model's files again.", LoadReason.NOT_FOUND)
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        try:
            return self.read_parts()
        except LoadFailed:
            raise
        except Exception as error:
            raise classified(self.spec.id, error) from error

    def read_model(self, auto: str) -> torch.nn.Module:
        """The model that an Auto class of the library finds in the files. Raises LoadFailed if a weight is absent."""
        import torch
        import transformers

        module, info = getattr(transformers, auto).from_pretrained(
            self.files,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=getattr(torch, self.dtype),
            output_loading_info=True,
        )
        absent = sorted(info["missing_keys"])
        if absent:
            # The library makes them up at random, with a line in the log.
            message = f"The files of {self.spec.id} lack {absent[0]}: it is no model of this family, or cut short."
            raise LoadFailed(message, LoadReason.CORRUPT)
        found: torch.nn.Module = module
        return found

    def read_tokenizer(self) -> Any:
        """The library's tokenizer of the files. Raises LoadFailed where it is not a fast one."""
        from transformers import AutoTokenizer

        found: Any = AutoTokenizer.from_pretrained(self.files, local_files_only=True, trust_remote_code=False)
        if getattr(found, "backend_tokenizer", None) is None:
            raise LoadFailed(f"{self.spec.id} has no tokenizer.json, which this family needs.", LoadReason.CONFIG)
        return found

    @abstractmethod
    def prompt_of(self, entry: Entry) -> Prompt | ItemRejected:
        """The item as the model reads it, or why it cannot be read."""

    @abstractmethod
    def choose_decoder(self, module: Any) -> Decoder:
        """How the model's sequences are fed, found out by trial. Raises LoadFailed."""

    @abstractmethod
    def tokenizer_of(self) -> Any:
        """The library's fast tokenizer, after `read`."""

    def footprint(self) -> Footprint:
        """Weights and LoRA slots, a token's activations with its logits, and its keys and values in all layers."""
        size = FLOAT_BYTES[self.dtype]
        shape = self.shape()
        config = read_json(self.files / "config.json")
        text = config.get("text_config") or config
        heads = text.get("num_key_value_heads") or text.get("num_attention_heads") or shape.heads
        each = text.get("head_dim") or shape.hidden // max(1, shape.heads)
        activations = size * (7 * shape.hidden + 3 * shape.inner) + 8 * int(text.get("vocab_size") or 0)
        return Footprint(self.weight_bytes(), activations, 2 * size * shape.layers * int(heads) * int(each))

    def weight_bytes(self) -> int:
        """Bytes of the weights once loaded, and of what LoRA adapters may take beside them."""
        size = FLOAT_BYTES[self.dtype]
        return read_weights(weight_files(self.files), size).bytes + self._lora_bytes()

    def held(self) -> int | None:
        """The weights, and all LoRA slots, whether anything is in them or not."""
        bare = super().held()
        return bare if not bare or self._loaded is None else self._loaded.reserved

    def warm_up(self) -> None:
        """Choose how sequences are fed, and make ready what they need."""
        import torch

        module, tokenizer = self.module, self.tokenizer_of()
        if module is None:
            raise RuntimeError("a warm-up without a model")
        head: Any = getattr(module, "get_output_embeddings")()  # noqa: B009 - torch's own type does not know it
        vocabulary = Vocabulary(tokenizer.backend_tokenizer, int(head.weight.shape[0]), end_tokens(module, tokenizer))
        with torch.inference_mode():
            decoder = self.choose_decoder(module)
        slots, dtype = self._lora_options.lora_slots, getattr(torch, self.dtype)
        loras = Loras(module, self.spec.loras, slots, self._slot_bytes(), dtype)
        reserved = module_bytes(module) + self._lora_bytes()
        self._loaded = Loaded(decoder, vocabulary, Grammars(vocabulary), loras, reserved)

    def forget(self) -> None:
        """Drop what `warm_up` has made."""
        self._loaded = None

    def join(self, entry: Entry) -> TokenSequence | EngineError:
        """The item's prompt as tokens, its grammar compiled, its LoRA read into host memory."""
        from engine.generation.attention import SequenceCache
        from engine.generation.decoding import Memory
        from engine.generation.sampling import Sampler

        options, loaded = options_of(entry), self.loaded
        vocabulary = loaded.vocabulary
        beyond = next((token for token in options.logit_bias or {} if int(token) >= vocabulary.size), None)
        if beyond is not None:
            message = f"'logit_bias' has the token {beyond}; the model has {vocabulary.size}."
            return ItemRejected(message, param="options.logit_bias")
        prompt = self.prompt_of(entry)
        if isinstance(prompt, ItemRejected):
            return prompt
        if not prompt.ids:
            return ItemRejected("The prompt is empty.")
        room = self.spec.max_length - len(prompt.ids)
        if room < 1:
            message = f"The prompt has {len(prompt.ids)} tokens; the model keeps {self.spec.max_length} in all."
            return TextTooLong(message)
        try:
            lock = None if options.grammar is None else loaded.grammars.lock(options.grammar)
            read = None if options.lora is None else loaded.loras.read(options.lora)
        except EngineError as error:
            return error
        most = min(options.most(self.spec), room)
        return GeneratedSequence(
            entry,
            prompt,
            most,
            memory=Memory(SequenceCache(len(prompt.ids) + most)),
            sampler=Sampler(options, prompt.ids, vocabulary.ends),
            telling=Telling(vocabulary.decode, options.stops),
            lock=lock,
            read_lora=read,
        )

    def step(self, parts: Sequence[Part]) -> Sequence[Outcome | None]:
        """One pass for all whose LoRA is the same; the tokens that come out of it are chosen one by one."""
        outcomes: list[Outcome | None] = [None] * len(parts)
        by_lora: dict[str | None, list[int]] = {}
        for place, part in enumerate(parts):
            sequence = _own(part.sequence)
            try:
                if self._seated(sequence):
                    by_lora.setdefault(sequence.options.lora, []).append(place)
            except LoadFailed as error:
                outcomes[place] = error
        for name, places in by_lora.items():
            stepped = self.within_memory("a step", lambda n=name, p=places: self._pass(n, [parts[i] for i in p]))  # type: ignore[misc]  # bound now
            for place, outcome in zip(places, stepped, strict=True):
                outcomes[place] = outcome
        return outcomes

    def leave(self, sequence: TokenSequence) -> None:
        """Give back its cache and its part in a LoRA slot."""
        own = _own(sequence)
        own.memory = None
        if own.in_slot and self._loaded is not None and own.options.lora is not None:
            own.in_slot = False
            self._loaded.loras.release(own.options.lora)

    def _seated(self, sequence: GeneratedSequence) -> bool:
        """Whether its LoRA is on the device; it waits where all slots are in use."""
        name = sequence.options.lora
        if name is None or sequence.in_slot:
            return True
        sequence.in_slot = self.loaded.loras.take(name, sequence.read_lora)
        if sequence.in_slot:
            sequence.read_lora = None
        return sequence.in_slot

    def _pass(self, lora: str | None, parts: Sequence[Part]) -> list[Outcome | None]:
        import torch

        from engine.generation.decoding import Feed

        self.ready()
        decoder = self.loaded.decoder
        feeds: list[Feed] = []
        fed: list[GeneratedSequence] = []
        for part in parts:
            sequence = _own(part.sequence)
            if part.read > sequence.unread or (not part.read and sequence.unread):
                raise ValueError("a step that reads what is not there, or makes before all is read")
            if sequence.memory is None:
                raise ValueError("a step of a sequence that has left")
            begin, end = sequence.fed, sequence.read + part.read
            if not part.read:
                feeds.append(Feed(sequence.memory, [sequence.last]))
            elif end < sequence.prompt and (decoder.whole or sequence.prompted.beside):
                # All of it is computed with the last part.
                continue
            else:
                ids, beside = sequence.prompted.ids[begin:end], sequence.prompted.beside
                feeds.append(Feed(sequence.memory, ids, wanted=end == sequence.prompt, beside=beside))
            fed.append(sequence)
        with torch.inference_mode():
            self.loaded.loras.use(lora)
            logits = decoder.feed(feeds) if feeds else []
            chosen = self._choose(fed, logits)
        outcomes: list[Outcome | None] = []
        for part in parts:
            sequence = _own(part.sequence)
            sequence.read += part.read
            if sequence in fed and part.read:
                sequence.fed = sequence.read
            outcomes.append(chosen.get(id(sequence)))
        return outcomes

    def _choose(
        self, sequences: Sequence[GeneratedSequence], logits: Sequence[torch.Tensor | None]
    ) -> dict[int, Outcome]:
        """A new token for each that has logits; the outcomes of those that end here, by the sequence's id."""
        import torch

        found: dict[int, Outcome] = {}
        due = [(own, row) for own, row in zip(sequences, logits, strict=True) if row is not None]
        if not due:
            return found
        rows = torch.stack([row for _, row in due])
        sound = (rows.max(dim=-1).values.isfinite() & ~rows.isnan().any(dim=-1)).tolist()
        likeliest = rows.argmax(dim=-1).tolist()
        for (sequence, row), whole, likely in zip(due, sound, likeliest, strict=True):
            if not whole:
                found[id(sequence)] = NotFinite("The model gave no finite number for the next token.")
                continue
            try:
                token, complete = self._next(sequence, row, likely)
            except ItemRejected as error:
                found[id(sequence)] = error
                continue
            outcome = self._advance(sequence, token, complete=complete)
            if outcome is not None:
                found[id(sequence)] = outcome
        return found

    def _next(self, sequence: GeneratedSequence, row: torch.Tensor, likely: int) -> tuple[int, bool]:
        """The next token, and whether its grammar ends with it."""
        if sequence.sampler.plain:
            return likely, False
        import torch

        from engine.generation.sampling import logprobs_of

        own = row.float().cpu()
        allowed = None if sequence.lock is None else torch.from_numpy(sequence.lock.allowed())
        token = sequence.sampler.choose(own, allowed)
        sequence.sampler.took(token)
        options = sequence.options
        if options.logprobs:
            sequence.logprobs.append(logprobs_of(own, token, options.top_logprobs, self.loaded.vocabulary))
        return token, sequence.lock is not None and sequence.lock.take(token)

    def _advance(self, sequence: GeneratedSequence, token: int, *, complete: bool) -> Output | None:
        sequence.made += 1
        sequence.last = token
        ended = token in self.loaded.vocabulary.ends
        stopped = (not ended and sequence.telling.add(token)) or ended or complete
        if not stopped and sequence.made < sequence.most:
            sequence.said = sequence.telling.said
            return None
        # What was held back is final now.
        sequence.said = sequence.telling.text
        fields: dict[str, Any] = {"text": sequence.said, "finish_reason": "stop" if stopped else "length"}
        if sequence.options.logprobs:
            fields["logprobs"] = sequence.logprobs
        usage = {"prompt_tokens": sequence.prompt, "completion_tokens": sequence.made}
        return Output(fields, tokens=sequence.prompt + sequence.made, usage=usage)

    def _slot_bytes(self) -> int:
        if not self.spec.loras:
            return 0
        return slot_bytes(self.spec.loras, self._lora_options.lora_rank, self.shape(), FLOAT_BYTES[self.dtype])

    def _lora_bytes(self) -> int:
        return self._slot_bytes() * min(self._lora_options.lora_slots, len(self.spec.loras))


def options_of(entry: Entry) -> GenerateOptions:
    """The options of an item's job."""
    found = entry.work.options
    if not isinstance(found, GenerateOptions):
        raise TypeError(f"{type(found).__name__} are not options of generate")
    return found


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a text: those of the generation config, else the tokenizer's own. Raises LoadFailed."""
    found = getattr(model.generation_config, "eos_token_id", None)
    if found is None:
        found = tokenizer.eos_token_id
    if found is None:
        raise LoadFailed("The model's files name no token that ends a text (eos_token_id).", LoadReason.CONFIG)
    return [int(found)] if isinstance(found, int) else [int(token) for token in found]


def plain_words(tokenizer: Any) -> list[int]:
    """Ids of tokens that are no control tokens: what a trial's texts are made of."""
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    return [index for index in range(tokenizer.backend_tokenizer.get_vocab_size()) if index not in added]


def _own(sequence: TokenSequence) -> GeneratedSequence:
    if not isinstance(sequence, GeneratedSequence):
        raise TypeError("not a sequence of this family")
    return sequence
