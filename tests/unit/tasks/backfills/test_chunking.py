from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.backfills import chunking
from tasks.backfills.chunking import LONGEST_HEADING, Block, Chunk, Cut, Unit, blocks_of, chunks, parsed_blocks
from tasks.errors import LimitExceeded

CHARS = Cut(24, 0, Unit.CHARS)


def lengths(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def cut(text: str, how: Cut = CHARS) -> list[Chunk]:
    return list(chunks(blocks_of(text), how, lengths if how.unit is Unit.CHARS else words))


def test_a_short_text_is_one_chunk() -> None:
    assert cut("A short text.") == [Chunk("A short text.")]


def test_a_text_is_cut_at_the_ends_of_sentences() -> None:
    found = cut("The owl sleeps by day. The wren sings. It is small.")

    assert [one.text for one in found] == ["The owl sleeps by day.", "The wren sings.", "It is small."]


def test_short_paragraphs_share_a_chunk_and_stay_apart_in_it() -> None:
    assert [one.text for one in cut("One.\n\nTwo.\n\nThree and more words.")] == [
        "One.\n\nTwo.",
        "Three and more words.",
    ]


def test_a_sentence_that_is_too_long_is_cut_at_its_words_and_a_word_in_its_middle() -> None:
    found = cut("a very long sentence without any end at all " + "x" * 50)

    assert all(len(one.text) <= 24 for one in found)
    assert "".join("".join(one.text.split()) for one in found) == "averylongsentencewithoutanyendatall" + "x" * 50


def test_each_chunk_begins_with_the_end_of_the_one_before() -> None:
    found = cut("One two. Three four. Five six. Seven eight.", Cut(4, 2, Unit.TOKENS))

    assert [one.text for one in found] == ["One two. Three four.", "Three four. Five six.", "Five six. Seven eight."]


def test_a_chunk_knows_the_headings_that_it_is_under_and_a_new_one_begins_a_new_chunk() -> None:
    found = cut("Before.\n# Birds\nAn owl.\n\n## Nests ##\nMoss.\n### Eggs\nWhite.\n## Songs\nLoud.")

    assert [(one.text, one.headings) for one in found] == [
        ("Before.", ()),
        ("An owl.", ("Birds",)),
        ("Moss.", ("Birds", "Nests")),
        ("White.", ("Birds", "Nests", "Eggs")),
        ("Loud.", ("Birds", "Songs")),
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("end", ["x", "#x", ""])
def test_a_heading_with_many_blanks_does_not_take_long(end: str) -> None:
    (found,) = blocks_of("# a" + " " * 20_000 + end)

    assert found.text.startswith("a")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("blank", [" ", "\u00a0", "\t \n"])
def test_a_text_with_many_blanks_does_not_take_long(blank: str) -> None:
    found = cut("a" + blank * 100_000 + "b")

    assert "".join(one.text for one in found).split() in (["a", "b"], ["ab"])


@pytest.mark.parametrize(("line", "text"), [("# a #", "a"), ("# a ## \t", "a"), ("# #", "#"), ("## a#b", "a#b")])
def test_a_heading_is_told_without_what_closes_it(line: str, text: str) -> None:
    assert blocks_of(line) == [Block(text)]


def test_what_is_too_long_to_be_a_heading_is_a_text() -> None:
    found = blocks_of("# One\n# " + "x" * (LONGEST_HEADING + 1) + "\nunder it")

    assert [(len(one.text), one.headings) for one in found] == [(LONGEST_HEADING + 1, ("One",)), (8, ("One",))]


@pytest.mark.parametrize(
    ("text", "how"),
    [("a" * 2000, Cut(1, 0, Unit.CHARS)), ("Some words. " * 200, Cut(1000, 999, Unit.CHARS))],
    ids=["small", "overlapping"],
)
def test_a_document_that_makes_too_many_chunks_is_refused(text: str, how: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "MOST_CHUNKS", 1000)
    monkeypatch.setattr(chunking, "MOST_CHARS", 50_000)
    with pytest.raises(LimitExceeded, match="overlap"):
        for _ in chunks(blocks_of(text), how, lengths):
            pass


def test_headings_of_a_level_that_has_none_above_it_follow_each_other() -> None:
    found = cut("## One\na\n## Two\nb")

    assert [one.headings for one in found] == [("One",), ("Two",)]


def test_a_heading_with_nothing_under_it_is_a_text() -> None:
    assert [one.text for one in cut("# Only this\n# And this")] == ["Only this\n\nAnd this"]


def test_form_feeds_are_the_ends_of_pages() -> None:
    found = cut("The first page is here.\fThe second page is here.")

    assert [(one.text, one.page) for one in found] == [("The first page is here.", 1), ("The second page is here.", 2)]


@pytest.mark.parametrize("text", ["", " \n\n\t", "\f\f"])
def test_nothing_gives_no_chunks(text: str) -> None:
    assert cut(text) == []


DOCLING = {
    "markdown": "not looked at",
    "tables": [{"markdown": "| a | b |"}],
    "document": {
        "body": {
            "self_ref": "#/body",
            "children": [{"$ref": ref} for ref in ("#/texts/0", "#/texts/1", "#/groups/0", "#/tables/0", "#/texts/4")],
        },
        "groups": [{"self_ref": "#/groups/0", "children": [{"$ref": "#/texts/2"}, {"$ref": "#/texts/3"}]}],
        "texts": [
            {"self_ref": "#/texts/0", "label": "title", "text": "Report", "prov": [{"page_no": 1}]},
            {"self_ref": "#/texts/1", "label": "text", "text": "Intro.", "prov": [{"page_no": 1}]},
            {"self_ref": "#/texts/2", "label": "list_item", "text": "first", "prov": [{"page_no": 2}]},
            {"self_ref": "#/texts/3", "label": "list_item", "text": "second", "prov": [{"page_no": 2}]},
            {
                "self_ref": "#/texts/4",
                "label": "section_header",
                "level": 1,
                "text": "End",
                "children": [{"$ref": "#/texts/4"}, {"$ref": "#/texts/9"}],
            },
        ],
        "tables": [{"self_ref": "#/tables/0", "label": "table", "prov": [{"page_no": 3}]}],
    },
}


def test_a_parsed_document_has_its_pages_headings_lists_and_tables_in_reading_order() -> None:
    assert parsed_blocks(DOCLING) == [
        Block("Intro.", 1, ("Report",)),
        Block("first", 2, ("Report",)),
        Block("second", 2, ("Report",)),
        Block("| a | b |", 3, ("Report",)),
        Block("End", None, ("Report",)),
    ]


@pytest.mark.parametrize(
    "data", [{"text": "plain"}, {"markdown": "plain", "document": {}}, {"text": "plain", "document": 3}]
)
def test_what_has_no_structure_is_read_as_a_text(data: dict[str, object]) -> None:
    assert parsed_blocks(data) == [Block("plain")]


@given(st.text("ab .\n#é", max_size=300), st.integers(1, 40), st.data())
def test_no_chunk_is_too_large_and_nothing_is_lost(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    found = cut(text, Cut(size, overlap, Unit.CHARS))

    assert all(0 < len(one.text) <= size for one in found)
    if overlap == 0:
        told = "".join(one.text for one in found)
        blocks = "".join(block.text for block in blocks_of(text))
        assert "".join(told.split()) == "".join(blocks.split())
