"""Docling with a page that never ends: page 2 of a document that says so. Runs in the pool's process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from docling.pipeline.native_pdf_pipeline import NativePdfPipeline

from engine.documents.converter import Converter


class Endless(Converter):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        parse = NativePdfPipeline._parse_page

        def stuck(pipeline: Any, timings: Any, result: Any, page: Any) -> Any:
            if page.page_no == 2 and self.said == "sleeping.pdf":
                time.sleep(3600)
            while page.page_no == 2 and self.said == "spinning.pdf":
                pass
            return parse(pipeline, timings, result, page)

        NativePdfPipeline._parse_page = stuck  # type: ignore[method-assign, assignment]

    def convert(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.said = request["name"]
        # The time of this one is up after its first page.
        late = {"soft_s": 0.0} if self.said == "late.pdf" else {}
        return super().convert({**request, **late})
