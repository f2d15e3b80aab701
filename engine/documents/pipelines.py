"""Docling's converter for one profile: which engines there are, and pipelines that are made once and then switched.

Imported in the pool's processes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import docling.models.plugins.defaults as engines
from docling.datamodel.accelerator_options import AcceleratorDevice, AcceleratorOptions
from docling.datamodel.backend_options import ThreadedDoclingParseBackendOptions
from docling.datamodel.base_models import InputFormat
from docling.datamodel.pipeline_options import (
    NativePdfPipelineOptions,
    RapidOcrOptions,
    TableStructureOptions,
    ThreadedPdfPipelineOptions,
)
from docling.document_converter import DocumentConverter, FormatOption, ImageFormatOption, PdfFormatOption
from docling.pipeline.native_pdf_pipeline import NativePdfPipeline
from docling.pipeline.standard_pdf_pipeline import StandardPdfPipeline
from pydantic import SecretStr

from engine.documents.heron import do_without_torchvision
from engine.documents.light import (
    NoLayout,
    NoLayoutOptions,
    NoTables,
    NoTablesOptions,
    RapidLayoutModel,
    RapidLayoutOptions,
    SlanetOptions,
    SlanetTables,
)
from engine.documents.stages import SwitchedLayout, SwitchedOcr, Switches

_READ = [
    *(InputFormat.PDF, InputFormat.IMAGE, InputFormat.DOCX, InputFormat.PPTX, InputFormat.XLSX),
    *(InputFormat.HTML, InputFormat.MD, InputFormat.CSV),
]
_STUCK_S = 1.0
"""How long a stage that does not end is waited for once the time is up; the process is killed soon after anyway."""


class Pipelines:
    """The converter of a profile. `settings` has `layout`, `tables`, `threads` and `artifacts`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Make the pipeline for PDFs, so that models which cannot be had are missed now."""
        self._settings = settings
        self._switches = Switches()
        self._offer()
        # Without a layout to look at, lines as the file has them are all there is, and no page need be drawn.
        self._native = settings["layout"] == "none"
        standard = self._standard()
        self._converter = DocumentConverter(
            allowed_formats=_READ,
            format_options={
                InputFormat.PDF: PdfFormatOption(pipeline_options=standard),
                InputFormat.IMAGE: ImageFormatOption(pipeline_options=standard),
            },
        )
        self._pdf: Mapping[bool, FormatOption] = {False: self._converter.format_to_options[InputFormat.PDF]}
        if self._native:
            option = PdfFormatOption(
                pipeline_cls=NativePdfPipeline,
                pipeline_options=self._lines(),
                # No page is looked at, and drawing one of some metres would take minutes.
                backend_options=ThreadedDoclingParseBackendOptions(render_pages=False),
            )
            self._pdf = {**self._pdf, True: option}
        else:
            self._make(InputFormat.PDF)

    def draws(self, *, ocr: bool | None) -> bool:
        """Whether the pages of a PDF are drawn."""
        return not (self._native and ocr is False)

    def ready(
        self, format_: InputFormat, *, ocr: bool | None, tables: bool, password: SecretStr | None, seconds: float
    ) -> DocumentConverter:
        """The converter, set for one document of this format."""
        if format_ is InputFormat.PDF:
            native = not self.draws(ocr=ocr)
            option = self._pdf[native]
            if password is not None:
                locked = ThreadedDoclingParseBackendOptions(password=password, render_pages=not native)
                option = option.model_copy(update={"backend_options": locked})
            self._converter.format_to_options[format_] = option
        self._switches.ocr, self._switches.tables = ocr, tables
        if format_ in (InputFormat.PDF, InputFormat.IMAGE):
            self._make(format_)
        for pipeline in self._converter.initialized_pipelines.values():
            # A copy: the converter finds a pipeline by what its first options were.
            options = pipeline.pipeline_options
            pipeline.pipeline_options = options.model_copy(update={"document_timeout": seconds})
        for pipeline in self._standards():
            pipeline.table_model.enabled = tables and self._settings["tables"] != "none"
        return self._converter

    def _make(self, format_: InputFormat) -> None:
        """Have the pipeline of a format made, if it is not, and put the switches into it."""
        self._converter.initialize_pipeline(format_)
        for pipeline in self._standards():
            if not isinstance(pipeline.layout_model, SwitchedLayout):
                pipeline.layout_model = SwitchedLayout(pipeline.layout_model, self._switches)
                pipeline.ocr_model.switches = self._switches

    def _standards(self) -> list[Any]:
        """The pipelines that have stages to switch."""
        return [
            made for made in self._converter.initialized_pipelines.values() if isinstance(made, StandardPdfPipeline)
        ]

    def _standard(self) -> ThreadedPdfPipelineOptions:
        settings = self._settings
        more: dict[str, Any] = {}
        if settings["layout"] == "rapid":
            more["layout_options"] = RapidLayoutOptions()
        elif settings["layout"] == "none":
            more["layout_options"] = NoLayoutOptions()
        tables = {"slanet": SlanetOptions, "tableformer": TableStructureOptions, "none": NoTablesOptions}
        return ThreadedPdfPipelineOptions(
            do_ocr=True,
            ocr_options=RapidOcrOptions(),
            do_table_structure=settings["tables"] != "none",
            table_structure_options=tables[settings["tables"]](),
            accelerator_options=self._accelerator(),
            artifacts_path=Path(settings["artifacts"]) if settings.get("artifacts") else None,
            stage_shutdown_timeout_seconds=_STUCK_S,
            **more,
        )

    def _lines(self) -> NativePdfPipelineOptions:
        return NativePdfPipelineOptions(
            generate_page_images=False,
            generate_picture_images=False,
            parser_threads=self._settings["threads"],
            accelerator_options=self._accelerator(),
        )

    def _accelerator(self) -> AcceleratorOptions:
        return AcceleratorOptions(num_threads=self._settings["threads"], device=AcceleratorDevice.CPU)

    def _offer(self) -> None:
        """Tell Docling which engines there are: those of this profile alone.

        It asks this module of its own, and would else import what all its engines need, torchvision among it.
        """
        layouts: dict[str, list[type]] = {"rapid": [RapidLayoutModel], "none": [NoLayout]}
        if self._settings["layout"] == "heron":
            from docling.models.stages.layout.layout_object_detection_model import (
                LayoutObjectDetectionModel,
            )

            do_without_torchvision()
            layouts["heron"] = [LayoutObjectDetectionModel]
        tables: dict[str, list[type]] = {"slanet": [SlanetTables], "none": [NoTables]}
        if self._settings["tables"] == "tableformer":
            from docling.models.stages.table_structure.table_structure_model import (
                TableStructureModel,
            )

            tables["tableformer"] = [TableStructureModel]
        offered: dict[str, Callable[[], dict[str, list[type]]]] = {
            "layout_engines": lambda: {"layout_engines": layouts[self._settings["layout"]]},
            "table_structure_engines": lambda: {"table_structure_engines": tables[self._settings["tables"]]},
            "ocr_engines": lambda: {"ocr_engines": [SwitchedOcr]},
        }
        for name, offer in offered.items():
            setattr(engines, name, offer)
