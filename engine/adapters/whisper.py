"""Speech to text with Whisper: transcripts, translations into English, times of segments and words.

Sound of up to thirty seconds is heard in one pass, many items at once. Longer sound is heard window by window as the
library does it, each item by itself, and nothing of it is left out. Decoding is greedy unless `temperature` asks for
samples. The words are as the model gives them; only blanks around them are taken away.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.options import ExtractOptions
from catalog.schema import Spec
from catalog.terms import Verb
from engine.adapters.base import LoadOptions
from engine.audio import Sound, read_sound
from engine.errors import EngineError, ItemRejected, WrongCount
from engine.torch_adapter import TorchAdapter
from engine.types import Batch, Footprint, Outcome, Output

if TYPE_CHECKING:
    import torch

WINDOW_S = 30.0
"""What the encoder hears at once."""

_HEARING_BYTES = 600_000
"""What a second of sound takes while it is made into features, measured: samples, spectrum, powers, features."""

_STEP_S = 0.02
"""The model's clock: what one step of its timestamps lasts."""


class WhisperAdapter(TorchAdapter):
    """One Whisper on one device."""

    # A pass of short sound has a window of thirty seconds for each item; long sound takes all of its time alone.
    most_items = 16

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        self._listen: Any = None
        self._words: Any = None
        self._first_time = 0
        self._interrupted = threading.Event()

    @classmethod
    def group(cls, verb: Verb, options: Any) -> Hashable:
        """What the library takes once for all items of a call."""
        return (options.language, options.task, options.temperature, options.timestamps, options.max_new_tokens)

    def footprint(self) -> Footprint:
        """The encoder's activations; on a CPU, besides, what a second of sound takes before it."""
        found = super().footprint()
        return Footprint(found.weights, found.per_token + (_HEARING_BYTES if self.device == "cpu" else 0))

    def read(self) -> torch.nn.Module:
        """The model, and what makes sound into features and ids into words."""
        import torch
        from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer

        self._listen = WhisperFeatureExtractor.from_pretrained(self.files)
        self._words = WhisperTokenizer.from_pretrained(self.files)
        self._first_time = int(self._words.convert_tokens_to_ids("<|notimestamps|>")) + 1
        model: torch.nn.Module = WhisperForConditionalGeneration.from_pretrained(
            self.files, dtype=getattr(torch, self.dtype), use_safetensors=True, local_files_only=True
        )
        return model

    def forget(self) -> None:
        """Drop what `read` kept besides the module."""
        self._listen = self._words = None

    def interrupt(self) -> None:
        """Have a transcription in progress end at its next token."""
        self._interrupted.set()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """A transcript for each item's sound."""
        model: Any = self.ready()
        options: ExtractOptions = batch.entries[0].work.options
        outcomes: list[Outcome | None] = [None] * len(batch.entries)
        short: dict[int, Sound] = {}
        refusal = self._refusal(model, options)
        for place, entry in enumerate(batch.entries):
            found = refusal or self._heard_alone(model, entry.item.payload, options)
            if isinstance(found, Sound):
                short[place] = found
            else:
                outcomes[place] = found
        if short:
            for place, output in zip(short, self._heard(model, list(short.values()), options), strict=True):
                outcomes[place] = output
        return [outcome or WrongCount() for outcome in outcomes]

    def _heard_alone(self, model: Any, payload: Mapping[str, Any], options: ExtractOptions) -> Outcome | Sound:
        """What is heard in long sound, no two of which are there at once; or short sound, to be heard with others."""
        audio = payload.get("audio")
        if not isinstance(audio, dict):
            return ItemRejected("The item has no audio.", param="audio")
        sound = read_sound(audio, int(self._listen.sampling_rate))
        if isinstance(sound, EngineError) or sound.seconds <= WINDOW_S:
            return sound
        return self._heard(model, [sound], options)[0]

    def _refusal(self, model: Any, options: ExtractOptions) -> ItemRejected | None:
        """Why the options are none of this model's; its own files tell, so the door cannot."""
        if options.task not in (None, "transcribe", "translate"):
            return ItemRejected("'task' must be transcribe or translate.", param="options.task")
        most = int(model.config.max_target_positions) // 2
        if options.max_new_tokens is not None and options.max_new_tokens > most:
            message = f"{self.spec.id} writes at most {most} tokens for thirty seconds of sound."
            return ItemRejected(message, param="options.max_new_tokens")
        config = model.generation_config
        if getattr(config, "is_multilingual", True):
            known = getattr(config, "lang_to_id", None)
            if options.language is not None and known is not None:
                from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

                code = TO_LANGUAGE_CODE.get(options.language.lower(), options.language.lower())
                if f"<|{code}|>" not in known:
                    message = f"{self.spec.id} does not know the language {options.language!r}."
                    return ItemRejected(message, param="options.language")
            return None
        if options.task == "translate":
            return ItemRejected(f"{self.spec.id} hears English alone and translates nothing.", param="options.task")
        if options.language is not None and options.language.lower() not in ("en", "english"):
            return ItemRejected(f"{self.spec.id} hears English alone.", param="options.language")
        return None

    def _heard(self, model: Any, sounds: Sequence[Sound], options: ExtractOptions) -> list[Output]:
        return self.within_memory(f"hearing {len(sounds)} items", lambda: self._transcribe(model, sounds, options))

    def _transcribe(self, model: Any, sounds: Sequence[Sound], options: ExtractOptions) -> list[Output]:
        long = sounds[0].seconds > WINDOW_S
        features = self._listen(
            [sound.samples for sound in sounds],
            sampling_rate=sounds[0].rate,
            return_tensors="pt",
            return_attention_mask=True,
            **({"truncation": False, "padding": "longest"} if long else {}),
        )
        heard = features.input_features.to(self.device, model.dtype)
        mask = features.attention_mask.to(self.device)
        given = self._arguments(model, options, times=long or options.timestamps != "none")
        languages = self._languages(model, heard, options)
        found = model.generate(heard, attention_mask=mask, return_segments=True, **given)
        rows = found["sequences"].tolist()
        segments = found["segments"]
        return [
            self._output(sound, row, parts, options, language)
            for sound, row, parts, language in zip(sounds, rows, segments, languages, strict=True)
        ]

    def _arguments(self, model: Any, options: ExtractOptions, *, times: bool) -> dict[str, Any]:
        given: dict[str, Any] = {"return_timestamps": times, "stopping_criteria": [self._stop]}
        if options.timestamps == "word":
            given["return_token_timestamps"] = True
        if getattr(model.generation_config, "is_multilingual", True):
            given |= {"language": options.language, "task": options.task or "transcribe"}
        if options.temperature:
            given |= {"do_sample": True, "temperature": options.temperature}
        else:
            given["do_sample"] = False
        if options.max_new_tokens is not None:
            given["max_new_tokens"] = options.max_new_tokens
        return given

    def _stop(self, ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        """The library asks this after every token."""
        import torch

        if self._interrupted.is_set():
            raise RuntimeError("interrupted")
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

    def _languages(self, model: Any, heard: torch.Tensor, options: ExtractOptions) -> list[str | None]:
        """The language of each item: as told, or as heard at its beginning."""
        if not getattr(model.generation_config, "is_multilingual", True):
            return ["en"] * len(heard)
        if options.language is not None:
            return [options.language] * len(heard)
        frames = int(WINDOW_S * 100)
        ids = model.detect_language(heard[:, :, :frames])
        return [token.strip("<|>") for token in self._words.convert_ids_to_tokens(ids.tolist())]

    def _output(
        self,
        sound: Sound,
        row: list[int],
        parts: Sequence[dict[str, Any]],
        options: ExtractOptions,
        language: str | None,
    ) -> Output:
        text = self._words.decode(row, skip_special_tokens=True).strip()
        data: dict[str, Any] = {"text": text, "language": language, "seconds": round(sound.seconds, 3)}
        if options.timestamps != "none":
            data["segments"] = [
                {
                    "start": round(float(part["start"]), 2),
                    "end": round(min(float(part["end"]), sound.seconds), 2),
                    "text": self._words.decode(part["tokens"], skip_special_tokens=True).strip(),
                }
                for part in parts
            ]
        if options.timestamps == "word":
            data["words"] = self._timed_words(parts, sound.seconds)
        made = sum(1 for token in row if token < self._words.eos_token_id)
        cut = any(self._cut_off(part["result"]) for part in parts)
        return Output({"data": data}, tokens=made, truncated=cut, usage={"audio_ms": round(sound.seconds * 1000)})

    def _cut_off(self, result: Any) -> bool:
        """Whether the limit of tokens lost some of a window's text, by the library's record of the window.

        What comes after the last two timestamps side by side is heard again, with the next window.
        """
        row = (result["sequences"] if isinstance(result, Mapping) else result).tolist()
        if self._words.eos_token_id in row:
            return False
        times = [token >= self._first_time for token in row]
        return times[-2:] == [False, True] or not any(one and other for one, other in pairwise(times))

    def _timed_words(self, parts: Sequence[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
        """Words with their times, by the attention of the decoder, as the library's pipeline finds them."""
        import torch

        words: list[dict[str, Any]] = []
        for part in parts:
            found = {
                "tokens": part["tokens"][None],
                "token_timestamps": torch.as_tensor(part["token_timestamps"])[None],
            }
            # The only way of the library from the times of tokens to those of words.
            _, more = self._words._decode_asr(
                [found], return_timestamps="word", return_language=False, time_precision=_STEP_S
            )
            for chunk in more["chunks"]:
                start, end = chunk["timestamp"]
                start, end = float(start), min(float(end if end is not None else seconds), seconds)
                words.append({"start": round(start, 2), "end": round(end, 2), "text": chunk["text"].strip()})
        return words
