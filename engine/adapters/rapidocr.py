"""Text in images by RapidOCR: PP-OCR's detector, orientation classifier and recogniser, in ONNX Runtime on the CPU.

The weights come with the package, so a model of this family needs no source. Lines come from top to bottom as the
library orders them, each with its place in pixels of the image as it is displayed.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from catalog.options import ExtractOptions
from catalog.schema import Spec
from catalog.terms import Verb
from engine.adapters.base import Adapter, LoadOptions, Place
from engine.errors import EngineError, ItemRejected, LoadFailed, LoadReason, OutOfMemory
from engine.failures import load_failure, out_of_memory
from engine.findings import score_of
from engine.images import only_image, widened
from engine.types import Batch, Footprint, Outcome, Output

if TYPE_CHECKING:
    from PIL import Image

_SESSIONS = 2.5
"""What the loaded sessions take, in parts of the model files; measured with three models on one thread."""

_IMAGE_BYTES = 700 * 2**20
"""The most that reading one image took besides, measured at 3,000 by 3,000 pixels (the library works on 2,000)."""

_LONGEST, _THINNEST = 2000, 17
"""The library scales an image down to the first, and cannot read what then has fewer pixels across than the second."""

_TALLEST = 8
"""So many times its width an image may be tall, before a field is put beside it."""

_LEAST_SCORE = 0.5
"""Lines that the recogniser is less sure of are dropped, as the library does."""


class RapidocrOptions(LoadOptions):
    """How many threads one image is read by."""

    threads: Annotated[int, Field(ge=1, le=256)] = 1


class RapidocrAdapter(Adapter):
    """One set of OCR models on the host's cores."""

    options = RapidocrOptions
    place: ClassVar[Place] = Place.HOST
    most_items = 1

    def __init__(self, spec: Spec, options: LoadOptions, folder: Path | None, device: str) -> None:
        super().__init__(spec, options, folder, device)
        if not isinstance(options, RapidocrOptions):
            raise TypeError(f"{type(options).__name__} are not the options of this family")
        self._threads = options.threads
        self._engine: Any = None
        self._interrupted = threading.Event()

    @classmethod
    def group(cls, verb: Verb, options: Any) -> Hashable:
        """Images are read one by one, each in a batch of its own: a page of text takes seconds."""
        return None

    def footprint(self) -> Footprint:
        """By the size of the package's model files, and what one image took."""
        return Footprint(int(_SESSIONS * sum(file.stat().st_size for file in _models())), _IMAGE_BYTES)

    def load(self) -> None:
        """Open the three models and read a word, since the library opens each when it is first used."""
        try:
            from rapidocr import RapidOCR

            self._engine = RapidOCR(
                params={
                    "EngineConfig.onnxruntime.intra_op_num_threads": self._threads,
                    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                    "Global.log_level": "error",
                }
            )
            self._engine(_bgr(_sample()))
        except Exception as error:
            self.unload()
            raise load_failure(self.spec.id, error) from error

    def unload(self) -> None:
        """Drop the sessions."""
        self._engine = None

    def interrupt(self) -> None:
        """End before the next image."""
        self._interrupted.set()

    def run(self, batch: Batch) -> Sequence[Outcome]:
        """The lines of each image, one after another: a pass over images of several sizes would be padding."""
        if self._engine is None:
            raise RuntimeError("run before load")
        return [self._read(entry.item.payload, entry.work.options) for entry in batch.entries]

    def _read(self, payload: Any, options: ExtractOptions) -> Outcome:
        image = only_image(payload)
        if isinstance(image, EngineError):
            return image
        if self._interrupted.is_set():
            raise RuntimeError("interrupted")
        if options.task not in (None, "ocr"):
            return ItemRejected("'task' must be ocr.", param="options.task")
        if min(image.size) * _LONGEST < _THINNEST * max(image.size) and max(image.size) > _LONGEST:
            message = (
                f"An image of {image.width} by {image.height} is scaled down until its longer side has {_LONGEST} "
                "pixels, and no text can be read in what is left of the other; cut it in pieces."
            )
            return ItemRejected(message, param="images[0].data")
        least = _LEAST_SCORE if options.threshold is None else options.threshold
        try:
            # The library does so with what is wide, and would scale what is tall up to gigabytes.
            sheet = image if image.width > image.height else widened(image, _TALLEST)
            found = self._engine(_bgr(sheet), text_score=least)
        except (RuntimeError, MemoryError) as error:
            if out_of_memory(error):
                raise OutOfMemory(f"There is no memory for an image of {image.width} by {image.height}.") from error
            raise
        lines = [
            {
                "text": text,
                "score": score_of(score),
                "bbox": _around(corners, image.size),
                "corners": [[round(float(x), 1), round(float(y), 1)] for x, y in corners],
            }
            for text, score, corners in zip(found.txts or (), found.scores or (), _corners(found.boxes), strict=True)
        ]
        data: dict[str, Any] = {"text": "\n".join(line["text"] for line in lines), "lines": lines}
        if not lines:
            data["warnings"] = ["no_text"]
        return Output({"data": data}, tokens=0, usage={"images": 1})


def _models() -> list[Path]:
    """The ONNX files in the installed package. Raises LoadFailed where there are none."""
    spec = find_spec("rapidocr")
    places = spec.submodule_search_locations if spec is not None else None
    files = sorted((Path(places[0]) / "models").glob("*.onnx")) if places else []
    if not files:
        message = "OCR needs the package rapidocr with its models: pip install 'roost[documents]'."
        raise LoadFailed(message, LoadReason.DEPENDENCY)
    return files


def _sample() -> Image.Image:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (128, 128), "white")
    ImageDraw.Draw(image).text((20, 40), "word", fill="black", font=ImageFont.load_default(32))
    return image


def _bgr(image: Image.Image) -> Any:
    """The image as the library takes arrays: blue first."""
    import numpy as np

    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])


def _corners(boxes: Any) -> list[Any]:
    return [] if boxes is None else list(boxes)


def _around(corners: Any, size: tuple[int, int]) -> list[int]:
    """The upright box around four corners, as `[x, y, width, height]` in whole pixels within the image."""
    xs = [min(max(float(x), 0.0), size[0]) for x, _ in corners]
    ys = [min(max(float(y), 0.0), size[1]) for _, y in corners]
    left, top = int(min(xs)), int(min(ys))
    return [left, top, round(max(xs)) - left, round(max(ys)) - top]
