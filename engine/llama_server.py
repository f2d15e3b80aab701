"""llama.cpp's own server inside this process: texts go on side by side in its slots, and are heard as they come.

Each request has a thread that waits for its server; the server computes in threads of its own and lets go of Python's
lock. A request that is stopped ends at its next token.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, ModelFailed, TextTooLong


@dataclass
class Speech:
    """One request: what it has said so far, in how many pieces, and, once it is over, how it ended.

    Guarded by the server's condition, which is told of every change.
    """

    text: str = ""
    pieces: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    ending: str = "stop"
    finish: str | None = None
    logprobs: list[Mapping[str, Any]] = field(default_factory=list)
    error: EngineError | None = None
    stopped: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more comes."""
        return self.finish is not None or self.error is not None


class LlamaServer:
    """One GGUF model. `heard` is notified of every piece."""

    def __init__(self, file: Path, *, slots: int, context: int, threads: int, gpu_layers: int) -> None:
        """Load it. Each of the `slots` keeps `context` tokens. Raises LoadFailed."""
        try:
            import xllamacpp
        except ImportError as error:
            message = "GGUF models need the package xllamacpp: pip install 'roost[llama]'."
            raise LoadFailed(message, LoadReason.DEPENDENCY) from error
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_parallel, params.n_ctx = slots, slots * context
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.n_gpu_layers = gpu_layers
        params.warmup = False
        params.use_jinja = True
        params.ui = False
        # Errors alone: otherwise it prints several lines about every request.
        params.verbosity = 1
        # It listens on a port of this machine besides, which nobody is to use.
        params.api_keys = [_secret()]
        params.endpoint_metrics = True
        self.heard = threading.Condition()
        try:
            self._server: Any = xllamacpp.Server(params)
            # Answered by the server's own loop, so that now it runs: one that is ended before it has begun goes on
            # for ever, and whoever ends it waits for that with Python's lock in hand.
            self._server.handle_metrics()
        except (RuntimeError, ValueError) as error:
            message = f"llama.cpp could not load {file.name}: {str(error).splitlines()[0][:200]}"
            raise LoadFailed(message, LoadReason.CORRUPT) from error

    def begin(self, body: Mapping[str, Any], *, chat: bool) -> Speech:
        """Send a request; its speech fills in from now on."""
        speech = Speech()
        call = self._server.handle_chat_completions if chat else self._server.handle_completions
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        thread = threading.Thread(target=self._follow, args=(call, asked, speech), name="llama", daemon=True)
        thread.start()
        return speech

    def close(self) -> None:
        """Drop the model; what still speaks is stopped by the server's end."""
        self._server = None

    def _follow(self, call: Any, body: Mapping[str, Any], speech: Speech) -> None:
        def hear(chunk: Any) -> bool:
            with self.heard:
                try:
                    _take(speech, chunk)
                except Exception as error:  # noqa: BLE001 - the server passes over what is raised in here
                    speech.error = _refusal(error)
                    speech.stopped = True
                self.heard.notify_all()
                return speech.stopped

        try:
            reply = call(dict(body), hear)
            failure = reply.get("error") if isinstance(reply, dict) else None
        except Exception as error:  # noqa: BLE001 - whatever it is, the sequence must end
            failure = error
        with self.heard:
            if failure is not None and not speech.over:
                speech.error = _refusal(failure)
            elif not speech.over:
                speech.finish = speech.ending
            self.heard.notify_all()


def _take(speech: Speech, chunk: Any) -> None:
    if isinstance(chunk, dict) and "error" in chunk:
        speech.error = _refusal(chunk["error"])
        return
    usage = chunk.get("usage") if isinstance(chunk, dict) else None
    if usage:
        speech.prompt_tokens = int(usage.get("prompt_tokens", 0))
        speech.new_tokens = int(usage.get("completion_tokens", 0))
    for choice in chunk.get("choices", ()) if isinstance(chunk, dict) else ():
        said = choice.get("text")
        if said is None:
            said = choice.get("delta", {}).get("content")
        if said:
            speech.text += said
            speech.pieces += 1
        found = (choice.get("logprobs") or {}).get("content")
        if found:
            speech.logprobs.extend(found)
        if choice.get("finish_reason") is not None:
            # What was used comes after it, so this is not the end yet.
            speech.ending = "length" if choice["finish_reason"] == "length" else "stop"


def _refusal(failure: Any) -> EngineError:
    """What the caller is told: of the server's own refusals what it says, of what broke beside them its name alone."""
    if isinstance(failure, Exception):
        return ModelFailed(type(failure).__name__)
    said = failure if isinstance(failure, Mapping) else {"message": str(failure)}
    if said.get("type") == "exceed_context_size_error":
        tokens, context = said.get("n_prompt_tokens"), said.get("n_ctx")
        return TextTooLong(f"The prompt has {tokens} tokens; the model keeps {context} in all.", param="text")
    return ItemRejected(f"llama.cpp refused the item: {str(said.get('message', ''))[:200]}")


def _secret() -> str:
    import secrets

    return secrets.token_urlsafe(24)
