"""What families of generating torch models have in common: a sequence's life from join to leave, step by step.

A family says how its library reads a folder and an item (`read_parts`, `prompt_of`); the rest is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from catalog.modelfolder import read_json, weight_files
from catalog.schema import Spec
from engine.adapters.base import LoadOptions, Part, StepAdapter, TokenSequence
from engine.checkpoint import read_weights
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, NotFinite, TextTooLong
from engine.generation.grammars import Grammars
from engine.generation.lora import Loras, slot_bytes
from engine.generation.sequences import GeneratedSequence, Prompt, options_of, own_sequence
from engine.generation.telling import Telling
from engine.generation.vocabulary import Vocabulary
from engine.library_model import LibraryAdapter
from engine.runner import of_item
from engine.torch_adapter import FLOAT_BYTES, TorchOptions, module_bytes
from engine.types import Entry, Footprint, Outcome, Output

if TYPE_CHECKING:
    import torch

    from engine.generation.decoding import Decoder, Feed


class GenerationOptions(TorchOptions):
    """How the weights are held, and how many LoRA adapters may be on the device at once.

    A slot holds an adapter of `lora_rank`, or the largest of the model's adapters that is on this machine.
    """

    lora_slots: Annotated[int, Field(ge=1, le=64)] = 4
    lora_rank: Annotated[int, Field(ge=1, le=1024)] = 64


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a loaded model generates with. `reserved` are the bytes of its weights and of all LoRA slots."""

    decoder: Decoder
    vocabulary: Vocabulary
    grammars: Grammars
    loras: Loras
    reserved: int


class GenerationAdapter(LibraryAdapter, StepAdapter):
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
            sampler=Sampler(options, prompt.ids, vocabulary.ends, entry.item.index),
            telling=Telling(vocabulary.decode, options.stops, prompt.opening if options.grammar is None else ""),
            lock=lock,
            read_lora=read,
        )

    def step(self, parts: Sequence[Part]) -> Sequence[Outcome | None]:
        """One pass for all whose LoRA is the same; the tokens that come out of it are chosen one by one."""
        own = [own_sequence(part.sequence) for part in parts]
        by_lora: dict[str | None, list[Part]] = {}
        for part, sequence in zip(parts, own, strict=True):
            try:
                if sequence.outcome is None and self._seated(sequence):
                    by_lora.setdefault(sequence.options.lora, []).append(part)
            except LoadFailed as error:
                sequence.outcome = error
        for name, some in by_lora.items():
            self.within_memory("a step", partial(self._passes, name, some))
        return [sequence.outcome for sequence in own]

    def leave(self, sequence: TokenSequence) -> None:
        """Give back its cache and its part in a LoRA slot."""
        own = own_sequence(sequence)
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

    def _passes(self, lora: str | None, parts: Sequence[Part]) -> None:
        """All in one pass, but for those that have to be alone: each is whole after its own."""
        import torch

        self.ready()
        decoder = self.loaded.decoder
        together: list[tuple[Part, Feed]] = []
        alone: list[tuple[Part, Feed]] = []
        for part in parts:
            feed = own_sequence(part.sequence).feed(part, whole=decoder.whole)
            if feed is None:
                part.sequence.read += part.read
            elif decoder.whole or feed.beside:
                alone.append((part, feed))
            else:
                together.append((part, feed))
        with torch.inference_mode():
            self.loaded.loras.use(lora)
            for some in (*([together] if together else []), *([one] for one in alone)):
                self._pass(some)

    def _pass(self, fed: Sequence[tuple[Part, Feed]]) -> None:
        """One forward pass and what it makes. Where it fails, its sequences are as they were."""
        import torch

        before = [feed.memory.length for _, feed in fed]
        try:
            logits = self.loaded.decoder.feed([feed for _, feed in fed])
            due = [
                (own_sequence(part.sequence), row)
                for (part, _), row in zip(fed, logits, strict=True)
                if row is not None
            ]
            rows = torch.stack([row for _, row in due]) if due else torch.empty((0, 1))
            sound = (rows.max(dim=-1).values.isfinite() & ~rows.isnan().any(dim=-1)).tolist()
            likeliest = rows.argmax(dim=-1).tolist()
        except BaseException:
            for (_, feed), length in zip(fed, before, strict=True):
                feed.memory.back(length)
            raise
        for part, _ in fed:
            own_sequence(part.sequence).took(part)
        for (sequence, row), whole, likely in zip(due, sound, likeliest, strict=True):
            if not whole:
                sequence.outcome = NotFinite("The model gave no finite number for the next token.")
                continue
            try:
                token, complete = self._next(sequence, row, likely)
                sequence.outcome = self._advance(sequence, token, complete=complete)
            except Exception as error:  # noqa: BLE001 - what goes wrong in choosing is this sequence's alone
                sequence.outcome = of_item(error, self.spec.id)

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
        sequence.tokens.append(token)
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
