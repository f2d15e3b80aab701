"""Stages of Docling's pipeline that obey a switch of each document, so that one set of models serves all options.

Imported in the pool's processes alone, which convert one document at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from docling.datamodel.pipeline_options import RapidOcrOptions
from docling.models.base_model import BaseModelWithOptions, BasePageModel
from docling.models.stages.ocr.rapid_ocr_model import RapidOcrModel
from docling_core.types.doc.base import BoundingBox, CoordOrigin
from docling_core.types.doc.labels import DocItemLabel


@dataclass(slots=True)
class Switches:
    """What the document in hand asks for. `ocr`: True also reads regions of pages that have text; None does not."""

    ocr: bool | None = None
    tables: bool = True


class SwitchedOcr(BasePageModel, BaseModelWithOptions):
    """RapidOCR, made when the first document needs it. Pages without text are read whole."""

    def __init__(self, enabled: bool, artifacts_path: Any, options: RapidOcrOptions, accelerator_options: Any) -> None:
        self.enabled = enabled
        self.options = options
        self.switches = Switches()
        self._accelerator = accelerator_options
        self._reader: RapidOcrModel | None = None

    @classmethod
    def get_options_type(cls) -> type[RapidOcrOptions]:
        """What it is chosen by."""
        return RapidOcrOptions

    def __call__(self, conv_res: Any, page_batch: Iterable[Any]) -> Iterable[Any]:
        """The pages, with what was read added to their cells."""
        if self.switches.ocr is False:
            yield from page_batch
            return
        if self._reader is None:
            # Without a folder of artifacts it takes the weights that its own package carries.
            self._reader = _Reader(True, None, self.options, self._accelerator)
            self._reader.switches = self.switches
        yield from self._reader(conv_res, page_batch)


class _Reader(RapidOcrModel):
    switches: Switches

    def get_ocr_rects(self, page: Any) -> list[BoundingBox]:
        """What of a page is read."""
        if not page.cells:
            size = page.size
            return [BoundingBox(l=0, t=0, r=size.width, b=size.height, coord_origin=CoordOrigin.TOPLEFT)]
        found: list[BoundingBox] = super().get_ocr_rects(page) if self.switches.ocr else []
        return found


class SwitchedLayout:
    """A layout model whose tables can be switched off: their lines are then text like any other."""

    def __init__(self, model: Any, switches: Switches) -> None:
        self._model = model
        self._switches = switches

    def __call__(self, conv_res: Any, page_batch: Iterable[Any]) -> Iterable[Any]:
        """The pages with their regions."""
        for page in self._model(conv_res, page_batch):
            if not self._switches.tables and page.predictions.layout is not None:
                layout = page.predictions.layout
                layout.clusters = [c for c in layout.clusters if c.label is not DocItemLabel.TABLE]
            yield page
