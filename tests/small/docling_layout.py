"""Docling's own layout model with random weights: the real architecture, two layers of it, and Docling's labels.

A folder of artifacts as Docling lays it out. Its boxes score under every threshold, so a page comes out as lines.
"""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

LABELS = (
    *("caption", "footnote", "formula", "list_item", "page_footer", "page_header", "picture", "section_header"),
    *("table", "text", "title", "document_index", "code", "checkbox_selected", "checkbox_unselected", "form"),
    "key_value_region",
)


def build(folder: Path) -> None:
    """Write the folder."""
    torch.manual_seed(0)
    backbone = transformers.RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 64, 128],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],  # type: ignore[call-arg]
    )
    config = transformers.RTDetrV2Config(
        backbone_config=backbone,
        d_model=32,
        encoder_hidden_dim=32,
        encoder_in_channels=[32, 64, 128],
        decoder_in_channels=[32, 32, 32],
        encoder_layers=1,
        decoder_layers=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        num_queries=30,
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
    )
    model = folder / "docling-project--docling-layout-heron"
    transformers.RTDetrV2ForObjectDetection(config).eval().save_pretrained(model)
    transformers.RTDetrImageProcessorPil(size={"height": 640, "width": 640}).save_pretrained(model)
