"""Words are read as they are written, and their boxes lie where they were drawn, however the file is turned."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from catalog.options import parse_options
from catalog.terms import Verb
from engine.adapters.base import Adapter
from engine.errors import ItemRejected
from engine.types import Batch, Output
from tests.adapters.conftest import batch, build, cases_of

CASE = cases_of("rapidocr")[0]


@pytest.fixture(scope="module")
def adapter() -> Iterator[Adapter]:
    built = build(CASE)
    built.load()
    yield built
    built.unload()


def read(adapter: Adapter, image: bytes, **options: Any) -> dict[str, Any]:
    parsed = parse_options(adapter.spec, Verb.EXTRACT, {}, options)
    (outcome,) = adapter.run(batch(Verb.EXTRACT, [{"images": [{"data": image}]}], [parsed]))
    assert isinstance(outcome, Output), outcome
    found: dict[str, Any] = outcome.fields["data"]
    return found


def drawn() -> bytes:
    data: bytes = CASE.items()[1]["images"][0]["data"]
    return data


def test_lines_are_read_in_order(adapter: Adapter) -> None:
    assert read(adapter, drawn())["text"] == "Water damage\nin the kitchen"


def test_boxes_lie_where_the_words_were_drawn(adapter: Adapter) -> None:
    first, second = read(adapter, drawn())["lines"]
    for line, top in ((first, 40), (second, 120)):
        x, y, width, height = line["bbox"]
        assert 25 <= x <= 45
        assert top - 15 <= y <= top + 15
        assert 150 <= width <= 400
        assert 25 <= height <= 70


def test_an_image_that_is_turned_by_its_exif_is_read_as_it_is_displayed(adapter: Adapter) -> None:
    turned = Image.open(io.BytesIO(drawn())).convert("RGB").rotate(90, expand=True)
    exif = Image.Exif()
    exif[274] = 6  # to be displayed a quarter clockwise
    out = io.BytesIO()
    turned.save(out, "JPEG", quality=95, exif=exif)
    found = read(adapter, out.getvalue())
    assert found["text"] == "Water damage\nin the kitchen"
    assert found["lines"][1]["bbox"][1] > 100


def test_an_empty_page_says_so(adapter: Adapter) -> None:
    out = io.BytesIO()
    Image.new("RGB", (200, 200), "white").save(out, "PNG")
    assert read(adapter, out.getvalue()) == {"text": "", "lines": [], "warnings": ["no_text"]}


def test_a_threshold_drops_what_is_less_sure(adapter: Adapter) -> None:
    assert read(adapter, drawn(), threshold=1.0)["lines"] == []


@pytest.mark.parametrize("size", [(20_000, 100), (100, 20_000), (2001, 11)])
def test_a_strip_that_scaling_leaves_nothing_of_is_refused_with_advice(adapter: Adapter, size: tuple[int, int]) -> None:
    (outcome,) = adapter.run(strip(size))
    assert isinstance(outcome, ItemRejected), outcome
    assert outcome.param == "images[0].data"
    assert "cut it in pieces" in outcome.message


def test_a_tall_strip_that_is_just_wide_enough_is_read(adapter: Adapter) -> None:
    (outcome,) = adapter.run(strip((20, 2352)))
    assert isinstance(outcome, Output), outcome
    assert outcome.fields["data"]["lines"] == []


def strip(size: tuple[int, int]) -> Batch:
    out = io.BytesIO()
    Image.new("RGB", size, "white").save(out, "PNG")
    options = parse_options(CASE.model()[0], Verb.EXTRACT, {}, {})
    return batch(Verb.EXTRACT, [{"images": [{"data": out.getvalue()}]}], [options])
