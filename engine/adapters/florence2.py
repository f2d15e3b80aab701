"""Florence-2: one model for captions, text in images, objects and places of phrases, told apart by a task.

Tasks are written as the model's cards do (`<OCR>`) or plainly (`ocr`). `labels` are the phrases of the tasks that look
for some. The model gives no scores, so `score` is null. Tasks about a region are refused: nothing says which region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from catalog.modelfolder import read_json
from catalog.options import ExtractOptions
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason
from engine.picture_reader import PictureReader, Written, decoder_positions
from engine.vision import read_image_processor, read_tokenizer

if TYPE_CHECKING:
    import torch
    from PIL import Image

TASKS = (
    "OCR",
    "OCR_WITH_REGION",
    "CAPTION",
    "DETAILED_CAPTION",
    "MORE_DETAILED_CAPTION",
    "OD",
    "DENSE_REGION_CAPTION",
    "REGION_PROPOSAL",
)
WITH_LABELS = ("CAPTION_TO_PHRASE_GROUNDING", "OPEN_VOCABULARY_DETECTION", "REFERRING_EXPRESSION_SEGMENTATION")

_ANSWERS = (
    "pure_text",
    "ocr",
    "description_with_bboxes",
    "bboxes",
    "phrase_grounding",
    "polygons",
    "description_with_bboxes_or_polygons",
)
"""Kinds of answers that the library's parser is told of where the model's files do not."""


class Florence2Adapter(PictureReader):
    """One Florence-2 on one device."""

    def read_parts(self) -> torch.nn.Module:
        """The model and its processor."""
        from transformers import Florence2Processor

        config = read_json(self.files / "processor_config.json")
        images, tokenizer = read_image_processor(self.files), read_tokenizer(self.files)
        if getattr(tokenizer, "image_token", None) is None:
            message = f"The tokenizer of {self.spec.id} has no token for images: take the files of the library's form."
            raise LoadFailed(message, LoadReason.CONFIG)
        self.processor = Florence2Processor(
            images,
            tokenizer,
            num_additional_image_tokens=config.get("num_additional_image_tokens", 0),
            post_processor_config=config.get("post_processor_config") or {name: {} for name in _ANSWERS},
        )
        self.tokenizer = tokenizer
        return self.read_model("Florence2ForConditionalGeneration")

    def prompt(self, options: ExtractOptions) -> str | EngineError:
        """The task's token, and after it the phrases where the task looks for some."""
        named = options.task or (self.spec.tasks.extract and self.spec.tasks.extract.task) or "OCR"
        task = named.strip("<> ").upper().replace(" ", "_").replace("-", "_")
        if task in TASKS:
            return _beside(task, options) or f"<{task}>"
        if task not in WITH_LABELS:
            message = f"'task' must be one of {', '.join(name.lower() for name in (*TASKS, *WITH_LABELS))}."
            return ItemRejected(message, param="options.task")
        if options.labels and options.instruction is not None:
            message = "The task looks for 'labels' or for an 'instruction'; give one of them."
            return ItemRejected(message, param="options.instruction")
        phrases = ". ".join(options.labels or ()) or (options.instruction or "")
        if not phrases.strip():
            return ItemRejected(f"The task {task.lower()} needs 'labels': what to look for.", param="options.labels")
        if any(token in phrases for token in self.tokenizer.all_special_tokens) or "<loc_" in phrases:
            return ItemRejected("'labels' must not hold the model's control tokens.", param="options.labels")
        prompt = f"<{task}>{phrases}"
        tokens, most = self._tokens(prompt), decoder_positions(self.ready())
        if tokens > most:
            return self.too_long(tokens, most, "options.labels" if options.labels else "options.instruction")
        return prompt

    def _tokens(self, prompt: str) -> int:
        """What the part that reads has of a prompt: the words that stand for the task, and the image before them."""
        (words,) = self.processor._construct_prompts(prompt)
        text = f"{self.tokenizer.bos_token}{words}{self.tokenizer.eos_token}"
        return int(self.processor.num_image_tokens) + len(self.tokenizer(text, verbose=False)["input_ids"])

    def begun(self, prompt: Any) -> int:
        """The token that begins every text."""
        return 1

    def see(self, image: Image.Image, prompt: Any) -> Mapping[str, torch.Tensor]:
        """The image's pixels, and the prompt behind places for the image."""
        return dict(self.processor(text=prompt, images=image, return_tensors="pt"))

    def write(
        self, model: Any, seen: Mapping[str, torch.Tensor], prompt: Any, given: Mapping[str, Any]
    ) -> torch.Tensor:
        """One generation over all images, each asked the same."""
        ids: torch.Tensor = model.generate(**seen, **given)
        return ids

    def parse(self, written: Written, size: tuple[int, int], options: ExtractOptions) -> Mapping[str, Any]:
        """The library's own reading of the answer, in our shapes."""
        prompt = self.prompt(options)
        if isinstance(prompt, EngineError):
            raise prompt
        task = prompt[: prompt.index(">") + 1]
        text = self.tokenizer.decode(written.ids, skip_special_tokens=False)
        answer = self.processor.post_process_generation(text, task=task, image_size=size)[task]
        name = task.strip("<>").lower()
        if isinstance(answer, str):
            return {"data": {"task": name, "text": answer}}
        if "quad_boxes" in answer:
            return {"data": _lines(name, answer, size)}
        boxes = answer.get("bboxes", ())
        labels = answer.get("bboxes_labels", answer.get("labels", ()))
        found: dict[str, Any] = {"task": name}
        if answer.get("polygons"):
            names = answer.get("polygons_labels", answer.get("labels", ()))
            found["polygons"] = [
                {"label": label, "polygons": _rounded(shape)}
                for label, shape in zip(names, answer["polygons"], strict=True)
            ]
            labels = answer.get("bboxes_labels", ())
        objects = [_object(label, box, size) for label, box in zip(labels, boxes, strict=True)]
        return {"objects": objects, "data": found}


def _beside(task: str, options: ExtractOptions) -> ItemRejected | None:
    """Why a task that is asked by its token alone cannot be had: something came beside it that is not read."""
    for name in ("labels", "instruction"):
        if getattr(options, name):
            message = f"The task {task.lower()} reads the image alone: leave {name!r} out."
            return ItemRejected(message, param=f"options.{name}")
    return None


def _object(label: str, box: Sequence[float], size: tuple[int, int]) -> dict[str, Any]:
    left, top, right, bottom = (
        min(max(round(value), 0), most) for value, most in zip(box, (*size, *size), strict=True)
    )
    return {"label": label.strip(), "score": None, "bbox": [left, top, max(0, right - left), max(0, bottom - top)]}


def _lines(task: str, answer: Mapping[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    lines = []
    for text, quad in zip(answer["labels"], answer["quad_boxes"], strict=True):
        xs, ys = quad[0::2], quad[1::2]
        shape = _object("", (min(xs), min(ys), max(xs), max(ys)), size)
        corners = [[round(x, 1), round(y, 1)] for x, y in zip(xs, ys, strict=True)]
        lines.append(
            {"text": text.replace("</s>", "").strip(), "score": None, "bbox": shape["bbox"], "corners": corners}
        )
    return {"task": task, "text": "\n".join(line["text"] for line in lines), "lines": lines}


def _rounded(shape: Any) -> Any:
    return [_rounded(one) for one in shape] if isinstance(shape, list | tuple) else round(float(shape), 1)
