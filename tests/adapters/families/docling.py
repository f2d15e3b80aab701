"""Documents by Docling without a model: the answers are those of the library's own converter on the same files."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from catalog.loader import Catalog
from catalog.schema import Spec
from catalog.terms import Verb
from engine.types import Output
from tests.adapters.case import Answers, Case, Payload
from tests.adapters.docling import files


def model() -> tuple[Spec, Path | None]:
    return Catalog.load([], strict=True).find("docling").spec, None


def items() -> list[Payload]:
    documents = {
        "report.pdf": files.pdf([files.LINES, ["A second page"]]),
        "estimate.docx": files.docx(),
        "deck.pptx": files.pptx(),
        "birds.xlsx": files.xlsx(),
        "page.html": b"<html><body><h1>Owls</h1><p>They hunt at night.</p><ul><li>one</li></ul></body></html>",
        "notes.md": b"# Notes\n\n* first\n* second\n\n|a|b|\n|-|-|\n|1|2|\n",
        "rows.csv": b"bird,count\nowl,3\nwren,12\n",
    }
    return [{"document": {"data": data, "name": name}} for name, data in documents.items()]


def reference(folder: Path | None, device: str) -> Answers:
    from docling.datamodel.base_models import DocumentStream, InputFormat
    from docling.datamodel.pipeline_options import NativePdfPipelineOptions
    from docling.document_converter import DocumentConverter, PdfFormatOption
    from docling.pipeline.native_pdf_pipeline import NativePdfPipeline

    lines = NativePdfPipelineOptions(generate_page_images=False)
    pdf = PdfFormatOption(pipeline_cls=NativePdfPipeline, pipeline_options=lines)
    converter = DocumentConverter(format_options={InputFormat.PDF: pdf})

    def answers(payloads: Sequence[Payload]) -> list[Any]:
        found = []
        for payload in payloads:
            document = payload["document"]
            done = converter.convert(DocumentStream(name=document["name"], stream=BytesIO(document["data"])))
            found.append(
                (done.document.export_to_markdown(), done.document.export_to_text(), len(done.document.tables))
            )
        return found

    return answers


def read(output: Output) -> Any:
    data = output.fields["data"]
    return data["markdown"], data["text"], len(data["tables"])


CASES = [
    Case(
        name="native",
        model=model,
        verb=Verb.EXTRACT,
        items=items,
        load={"layout": "none", "threads": 1},
        bad=({}, {"document": {"data": b"%PDF-1.3\nno\n%%EOF\n", "name": "broken.pdf"}}, {"text": "a text"}),
        reference=reference,
        found=read,
    )
]
