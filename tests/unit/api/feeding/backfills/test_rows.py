from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from api.feeding.backfills.parquet import kinds_of
from api.feeding.backfills.reading import UnreadableText, UnsupportedDocument, item_of, text_of
from api.feeding.backfills.rows import Piece, after, columns_of, rows_of, written
from tasks.backfills.backfill import Document
from tasks.backfills.plan import StepName

DOCUMENT = Document(1, "a.pdf", "file-1", "f", 10, {"year": 2020})
DENSE = {"dims": 2, "dtype": "float32", "values": np.array([0.5, 0.25], "<f4").tobytes()}
SPARSE = {
    "dims": 9,
    "dtype": "float32",
    "indices": np.array([3, 7], "<i4").tobytes(),
    "values": np.array([1, 2], "<f4").tobytes(),
}


def rows(steps: list[StepName], *pieces: Piece) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written(list(rows_of(DOCUMENT, steps, pieces))).splitlines()]


def test_a_chunk_with_its_vectors_is_a_row_of_plain_numbers() -> None:
    piece = Piece("a text", 3, 7, ["Birds"])
    found = after(StepName.ENCODE, piece, {"dense": DENSE, "sparse": SPARSE, "tokens": 4}, textual=False)

    (row,) = rows([StepName.PARSE, StepName.CHUNK, StepName.ENCODE], found)

    assert row == {
        "document": "a.pdf",
        "metadata": {"year": 2020},
        "chunk": 3,
        "page": 7,
        "headings": ["Birds"],
        "text": "a text",
        "dense": [0.5, 0.25],
        "sparse": {"indices": [3, 7], "values": [1.0, 2.0]},
        "tokens": 4,
    }


def test_a_parsed_document_has_its_markdown_as_its_text() -> None:
    found = after(StepName.PARSE, Piece(), {"data": {"markdown": "# A", "text": "A", "pages": 1}}, textual=True)

    (row,) = rows([StepName.PARSE], found)

    assert (row["text"], row["data"]["pages"]) == ("# A", 1)
    assert found.text == "# A"


def test_what_was_generated_is_the_output_beside_the_chunk_that_it_was_made_of() -> None:
    found = after(StepName.GENERATE, Piece("a chunk", 0), {"text": "made", "finish_reason": "stop"}, textual=True)

    (row,) = rows([StepName.CHUNK, StepName.GENERATE], found)

    assert (row["text"], row["output"], row["finish_reason"]) == ("a chunk", "made", "stop")
    assert found.text == "made"


def test_a_whole_document_of_one_verb_has_what_was_found_alone() -> None:
    found = after(StepName.SCORE, Piece(), {"id": "x", "score": 0.5, "rank": 0}, textual=False)

    assert rows([StepName.SCORE], found) == [{"document": "a.pdf", "metadata": {"year": 2020}, "score": 0.5}]


def test_what_is_called_as_a_column_of_ours_has_another_name() -> None:
    found = after(StepName.EXTRACT, Piece("t", 0), {"page": "?"}, textual=False)

    assert rows([StepName.CHUNK, StepName.EXTRACT], found)[0]["extract_page"] == "?"


def test_columns_are_told_with_their_kinds() -> None:
    found: list[dict[str, Any]] = [
        {"document": "a", "dense": np.array([1.0]), "page": None, "headings": [], "n": 1},
        {"document": "b", "page": 2, "headings": ["x"], "n": 1.5, "e": [{"a": 1}], "bits": np.array([1], "i1")},
        {"m": np.ones((2, 2)), "s": {"indices": np.array([1]), "values": np.array([1.0])}, "ok": True},
    ]

    columns = columns_of(found)

    assert columns == [
        "bits:ints",
        "dense:floats",
        "document:text",
        "e:json",
        "headings:texts",
        "m:rows",
        "n:float",
        "n:int",
        "ok:bool",
        "page:int",
        "s:sparse",
    ]
    assert list(kinds_of(columns))[:3] == ["document", "page", "headings"]
    assert kinds_of(columns)["n"] == "float"
    assert kinds_of(["x:text", "x:int"]) == {"x": "json"}


@pytest.mark.parametrize(
    ("name", "data", "inputs", "held"),
    [
        ("a.pdf", b"%PDF-1.7", ("document", "image"), "document"),
        ("a.png", b"\x89PNG\r\n", ("document", "image"), "document"),
        ("a.bin", b"\x89PNG\r\n", ("image",), "images"),
        ("a.jpg", b"?", ("image", "text"), "images"),
        ("a.webp", b"RIFF\0\0\0\0WEBP", ("image",), "images"),
        ("a.wav", b"RIFF\0\0\0\0WAVE", ("audio",), "audio"),
        ("a.txt", b"text", ("text",), "text"),
        ("a", "ä".encode(), ("text", "image"), "text"),
    ],
)
def test_a_document_is_given_as_its_model_reads_it(name: str, data: bytes, inputs: Any, held: str) -> None:
    assert list(item_of(name, data, inputs)) == [held]


@pytest.mark.parametrize(
    ("name", "data", "inputs"),
    [("a.pdf", b"%PDF-1.7", ("text",)), ("a.mp3", b"ID3", ("document", "text")), ("a.txt", b"text", ("image",))],
)
def test_what_a_model_does_not_read_is_refused(name: str, data: bytes, inputs: Any) -> None:
    with pytest.raises(UnsupportedDocument):
        item_of(name, data, inputs)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\0b"])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableText):
        text_of(data)


def test_a_mark_at_the_beginning_of_a_text_is_no_part_of_it() -> None:
    assert text_of("\ufeffabc".encode()) == "abc"


def test_integers_that_no_number_of_a_table_holds_exactly_are_told_as_they_are() -> None:
    assert columns_of([{"count": 2**53, "big": 2**63, "small": -(2**62) - 1}]) == [
        "big:json",
        "count:int",
        "small:json",
    ]
