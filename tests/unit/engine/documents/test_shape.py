"""What a caller gets of a document."""

from __future__ import annotations

from engine.documents.shape import clean, table, without_pictures


def test_what_cannot_be_stored_is_replaced_in_keys_and_values() -> None:
    assert clean({"a\x00": ["b\x00c", ("\ud800d", 7, None)]}) == {"a\ufffd": ["b\ufffdc", ["\ufffdd", 7, None]]}


def test_the_rows_at_the_top_that_head_columns_are_the_header() -> None:
    grid = [[("h1", True), ("h2", True)], [("r", True), ("1", False)]]
    assert table(grid, 3, "| h1 |") == {"page": 3, "header": [["h1", "h2"]], "rows": [["r", "1"]], "markdown": "| h1 |"}
    assert "page" not in table(grid, None, "")


def test_pictures_are_left_out_of_the_json() -> None:
    document = {"pictures": [{"image": {"uri": "data:"}, "prov": []}], "pages": {"1": {"image": {}, "size": {}}}}
    assert without_pictures(document) == {"pictures": [{"prov": []}], "pages": {"1": {"size": {}}}}
