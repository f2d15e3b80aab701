"""Generation by llama.cpp from GGUF files: quick on CPUs, beside the device loop, step by step as all that generate.

llama.cpp batches by itself; a step here waits until each sequence has said more. Its numbers depend a little on what is
computed beside, so a sample is repeatable alone only. Output may be locked to a JSON schema or to a list of texts; what
comes out is checked against the schema. Texts with a control token of the model's inside are refused: llama.cpp would
take them for what they look like. LoRA, tools and images are not served.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from catalog.options import GenerateOptions
from catalog.schema import Spec
from engine.adapters.base import LoadOptions, Part, Place, StepAdapter, TokenSequence
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason
from engine.gguf_file import GgufFacts, gguf_file, read_gguf
from engine.kept import keeps
from engine.llama_server import LlamaServer, Speech
from engine.readings import text_of
from engine.types import Entry, Footprint, Outcome, Output

PATIENCE_S = 0.25
"""A step waits this long at most for one more piece of every text, so that others join and leave meanwhile."""

_OVERHEAD = 64 * 2**20
"""What the server takes besides weights and caches; measured with a model of 135 million weights."""


_CONTROLS = re.compile(r"[\x01-\x1f\x7f]")


class LlamaCppOptions(LoadOptions):
    """How the model is run.

    `slots` texts go on side by side, each with room for `context` tokens (left out: the spec's `max_length`). `file` is
    the one of several GGUF files. `gpu_layers` are computed on a card where llama.cpp was built for one.
    """

    slots: Annotated[int, Field(ge=1, le=64)] = 4
    context: Annotated[int, Field(ge=64)] | None = None
    threads: Annotated[int, Field(ge=1, le=256)] = 2
    gpu_layers: Annotated[int, Field(ge=0)] = 0
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.gguf$")] | None = None


class NotKept(EngineError):
    """The text ended but does not keep to the schema; ask for a simpler one, or another model."""

    code = "grammar_not_kept"


class _Said(TokenSequence):
    """A sequence with its request, once it was sent."""

    def __init__(self, entry: Entry, prompt: int, most: int, body: Mapping[str, Any], *, chat: bool) -> None:
        super().__init__(entry, prompt, most)
        self.body = body
        self.chat = chat
        self.speech: Speech | None = None
        self.heard = 0


class LlamaCppAdapter(StepAdapter):
    """One GGUF model in llama.cpp."""

    options = LlamaCppOptions
    place: ClassVar[Place] = Place.HOST

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, LlamaCppOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        if folder is None:
            raise LoadFailed(f"{spec.id} needs a 'source' in its YAML to be of this family.", LoadReason.CONFIG)
        self._options = options
        self._folder = folder
        self._server: LlamaServer | None = None

    def footprint(self) -> Footprint:
        """The file's bytes and all slots' caches, which the server takes at its start."""
        facts = self._facts()
        caches = facts.cache_per_token * self._options.slots * self._context(facts)
        return Footprint(facts.bytes + caches + _OVERHEAD)

    def load(self) -> None:
        """Start the server."""
        facts = self._facts()
        if facts.context < self.spec.max_length:
            message = f"{self.spec.id} keeps {facts.context} tokens; its YAML says {self.spec.max_length}."
            raise LoadFailed(message, LoadReason.CONFIG)
        self._server = LlamaServer(
            self._file(),
            slots=self._options.slots,
            context=self._context(facts),
            threads=self._options.threads,
            gpu_layers=self._options.gpu_layers,
        )

    def unload(self) -> None:
        """End the server; its memory goes with it."""
        if self._server is not None:
            self._server.close()
        self._server = None

    def join(self, entry: Entry) -> TokenSequence | EngineError:
        """The item as a request that is not sent yet. llama.cpp counts its tokens; until then it is estimated."""
        options: GenerateOptions = entry.work.options
        facts = self._facts()
        payload = entry.item.payload
        if options.raw and "messages" in payload:
            return ItemRejected("'raw' goes with a text, not with messages.", param="options.raw")
        chat = "messages" in payload or (facts.has_template and not options.raw)
        found = _messages(payload) if chat else text_of(payload)
        if isinstance(found, EngineError):
            return found
        refused = _unsupported(options) or _control(found, facts.control)
        if refused is not None:
            return refused
        if chat and not facts.has_template:
            return ItemRejected(f"{self.spec.id} has no chat template: send a text.", param="messages")
        body = _body(options, options.most(self.spec), entry.item.index) | (
            {"messages": found} if chat else {"prompt": found}
        )
        return _Said(entry, max(1, entry.item.length), options.most(self.spec), body, chat=chat)

    def step(self, parts: Sequence[Part]) -> Sequence[Outcome | None]:
        """Send what has come, then wait until every text has grown or ended, but not for long."""
        server = self._server
        if server is None:
            raise RuntimeError("step before load")
        going: list[_Said] = []
        for part in parts:
            sequence = part.sequence
            if not isinstance(sequence, _Said):
                raise TypeError("not a sequence of this family")
            sequence.read += part.read
            if sequence.unread == 0:
                if sequence.speech is None:
                    sequence.speech = server.begin(sequence.body, chat=sequence.chat)
                going.append(sequence)
        until = time.monotonic() + PATIENCE_S
        with server.heard:
            while not all(_grown(one) for one in going) and (left := until - time.monotonic()) > 0:
                server.heard.wait(left)
            for one in going:
                _note(one)
        return [self._outcome(part.sequence) for part in parts]

    def leave(self, sequence: TokenSequence) -> None:
        """Have its request end at the next token."""
        if isinstance(sequence, _Said) and sequence.speech is not None:
            sequence.speech.stopped = True

    def _outcome(self, sequence: TokenSequence) -> Outcome | None:
        speech = sequence.speech if isinstance(sequence, _Said) else None
        if speech is None or not speech.over:
            return None
        if speech.error is not None:
            return speech.error
        options: GenerateOptions = sequence.entry.work.options
        if options.grammar is not None and speech.finish == "stop" and not _kept(options, speech.text):
            return NotKept(param="options.grammar")
        fields: dict[str, Any] = {"text": speech.text, "finish_reason": speech.finish}
        if options.logprobs:
            fields["logprobs"] = [_logprob(one, options.top_logprobs) for one in speech.logprobs]
        usage = {"prompt_tokens": speech.prompt_tokens, "completion_tokens": speech.new_tokens}
        return Output(fields, tokens=sum(usage.values()), usage=usage)

    def _file(self) -> Path:
        return self._folder / self._options.file if self._options.file else gguf_file(self._folder)

    def _facts(self) -> GgufFacts:
        return read_gguf(self._file())

    def _context(self, facts: GgufFacts) -> int:
        return min(self._options.context or self.spec.max_length, facts.context)


def _grown(sequence: _Said) -> bool:
    speech = sequence.speech
    return speech is not None and (speech.over or speech.pieces > sequence.heard)


def _note(sequence: _Said) -> None:
    speech = sequence.speech
    if speech is not None:
        sequence.heard = speech.pieces
        sequence.made = min(speech.pieces, sequence.most)
        sequence.said = speech.text


def _messages(payload: Mapping[str, Any]) -> list[dict[str, Any]] | ItemRejected:
    if "messages" not in payload:
        text = text_of(payload)
        return text if isinstance(text, ItemRejected) else [{"role": "user", "content": text}]
    if payload.get("images"):
        return ItemRejected("This model reads no images.", param="messages")
    found: list[dict[str, Any]] = []
    for message in payload["messages"]:
        if message["role"] == "tool" or message.get("tool_calls"):
            return ItemRejected("This family serves no tools: leave their messages out.", param="messages")
        content = message["content"]
        if not isinstance(content, str):
            content = "".join(part["text"] for part in content)
        # A name would go into the prompt unlooked at.
        found.append({"role": message["role"], "content": content})
    return found


def _control(found: str | list[dict[str, Any]], control: Sequence[str]) -> ItemRejected | None:
    texts = [found] if isinstance(found, str) else [message["content"] for message in found]
    for text in texts:
        token = next((one for one in control if one in text), None)
        if token is not None:
            return ItemRejected(f"The text holds {token!r}, a control token of this model.", param="text")
    return None


def _unsupported(options: GenerateOptions) -> ItemRejected | None:
    grammar = options.grammar
    if grammar is not None and any("\0" in text for text in grammar.choice or ()):
        return ItemRejected("llama.cpp's grammars have no NUL.", param="options.grammar.choice")
    for name in ("lora", "tools"):
        if getattr(options, name):
            return ItemRejected(f"This family serves no {name}.", param=f"options.{name}")
    return None


def _body(options: GenerateOptions, most: int, place: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "max_tokens": most,
        "n_predict": most,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k or 0,
        "min_p": 0.0,
        "repeat_penalty": options.repetition_penalty,
        "frequency_penalty": options.frequency_penalty,
        "presence_penalty": options.presence_penalty,
        "stop": list(options.stops),
        "cache_prompt": False,
    }
    seed = options.seed_at(place)
    if seed is not None:
        body["seed"] = seed % 2**32
    if options.logit_bias:
        body["logit_bias"] = [[int(token), bias] for token, bias in options.logit_bias.items()]
    if options.logprobs:
        # The server computes none at all where it is asked for zero others; each of its routes reads its own name.
        others = max(1, options.top_logprobs)
        body |= {"logprobs": True, "top_logprobs": others, "n_probs": others}
    if options.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": options.thinking}
    grammar = options.grammar
    if grammar is not None and grammar.json_schema is not None:
        schema = grammar.json_schema if isinstance(grammar.json_schema, dict) else {}
        body |= {"json_schema": schema, "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    if grammar is not None and grammar.choice is not None:
        body["grammar"] = f"root ::= {' | '.join(_literal(text) for text in grammar.choice)}"
    return body


def _literal(text: str) -> str:
    """A text in llama.cpp's language of grammars: it has few escapes, and takes all that is no control as it is."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", plain) + '"'


def _kept(options: GenerateOptions, text: str) -> bool:
    """Whether a text that has ended keeps to its grammar: llama.cpp passes over what it does not know of schemas."""
    grammar = options.grammar
    if grammar is not None and grammar.choice is not None:
        return text in grammar.choice
    schema = None if grammar is None else grammar.json_schema
    return schema is None or keeps(schema, text)


def _logprob(found: Mapping[str, Any], top: int) -> dict[str, Any]:
    one = {"token": found["token"], "logprob": found["logprob"], "bytes": found.get("bytes")}
    one["top_logprobs"] = [
        {"token": other["token"], "logprob": other["logprob"], "bytes": other.get("bytes")}
        for other in found.get("top_logprobs", ())[:top]
    ]
    return one
