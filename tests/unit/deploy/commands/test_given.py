from __future__ import annotations

import io
from pathlib import Path

import click
import pytest

from deploy.commands.given import items_of, options_of, schema_of


def test_texts_and_the_lines_of_standard_input_are_items() -> None:
    stdin = io.StringIO("one\n\n  \r\ntwo words\r\n")
    assert list(items_of(["a", "-", "b"], [], stdin)) == ["a", "one", "two words", "b"]


def test_each_file_is_read_by_its_kind(tmp_path: Path) -> None:
    rows, texts, paper = tmp_path / "a.jsonl", tmp_path / "b.TXT", tmp_path / "c.pdf"
    rows.write_text('"one"\n\n{"id": "x", "text": "two"}\n')
    texts.write_text("three\nfour\n")
    paper.write_bytes(b"pdf")
    found = list(items_of([], [rows, texts, paper], io.StringIO()))
    assert found == ["one", {"id": "x", "text": "two"}, "three", "four", paper]


def test_files_are_read_as_their_items_are_asked_for(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_text('"one"\nno JSON\n')
    items = items_of([], [rows], io.StringIO())
    assert next(items) == "one"
    with pytest.raises(click.ClickException, match="line 2"):
        next(items)


def test_options_are_json_where_they_can_be() -> None:
    assert options_of(["a=3", "b=false", "c=text", 'd=["x"]', "e=a=b", "f="]) == {
        "a": 3,
        "b": False,
        "c": "text",
        "d": ["x"],
        "e": "a=b",
        "f": "",
    }


@pytest.mark.parametrize("pair", ["normalize", "=true"])
def test_an_option_without_a_name_or_value_is_refused(pair: str) -> None:
    with pytest.raises(click.BadParameter, match="name=value"):
        options_of([pair])


def test_a_schema_is_json_or_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    assert schema_of(f"@{tmp_path / 's.json'}") == schema_of('{"type": "object"}') == {"type": "object"}
    assert schema_of(None) is None
    with pytest.raises(click.BadParameter, match="no JSON"):
        schema_of("{")
