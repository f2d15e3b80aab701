"""Cutting a document into chunks that a model can read, each with its page and the headings that it is under. Pure.

A document is a run of blocks. A block is cut at its paragraphs, sentences and words into pieces; pieces are put
together again up to a size, and each chunk begins with the end of the one before. A new heading begins a new chunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tasks.errors import LimitExceeded


class Unit(StrEnum):
    """What sizes count: tokens of the model that reads the chunks, or characters."""

    TOKENS = "tokens"
    CHARS = "chars"


@dataclass(frozen=True, slots=True)
class Cut:
    """How large a chunk may be, and how much of it comes from the one before."""

    size: int
    overlap: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, list item or table, where it is, and the headings that it is under."""

    text: str
    page: int | None = None
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text for one item. The page is that of its beginning."""

    text: str
    page: int | None = None
    headings: tuple[str, ...] = ()


LONGEST_HEADING = 1000
"""Characters; each chunk below a heading has it."""

MOST_CHUNKS, MOST_CHARS = 100_000, 2**26
"""Chunks of one document, and the characters of all of them: with a large overlap they are far more than its text."""

Count = Callable[[Sequence[str]], Sequence[int]]
"""How large each of these texts is."""


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    size: int
    block: Block
    first: bool


_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_SENTENCES = re.compile(r".+?(?:[.!?…][\"'»”)\]]*(?=\s)\s+|[\u3002\uff01\uff1f]|\n+|\Z)", re.DOTALL)
_WORDS = re.compile(r"\s*\S+\s*")
_PAGE = "\f"
_GAP = {Unit.TOKENS: 1, Unit.CHARS: 2}
"""What the blank line between two blocks counts."""

_BLANK = re.compile(r"\n[ \t]*\n")


def chunks(blocks: Sequence[Block], cut: Cut, count: Count) -> Iterator[Chunk]:
    """The chunks of a document in their order. No part of its text is lost but blanks between pieces.

    Raises LimitExceeded when they become more than a document may have.
    """
    number = chars = 0
    for chunk in _chunks(blocks, cut, count):
        if chunk.text:
            number, chars = number + 1, chars + len(chunk.text)
            if number > MOST_CHUNKS or chars > MOST_CHARS:
                said = f"The document makes more than {MOST_CHUNKS} chunks, or of {MOST_CHARS} characters"
                raise LimitExceeded(f"{said}: take a greater size or a lesser overlap, or part the document.")
            yield chunk


def _chunks(blocks: Sequence[Block], cut: Cut, count: Count) -> Iterator[Chunk]:
    held: list[_Piece] = []
    size = fresh = 0
    gap = _GAP[cut.unit]
    for piece in _pieces(blocks, cut.size, count):
        turned = bool(held) and piece.block.headings != held[-1].block.headings
        if fresh and (turned or size + gap * piece.first + piece.size > cut.size):
            yield _chunk(held)
            held = [] if turned else _tail(held, min(cut.overlap, cut.size - piece.size - gap * piece.first), gap)
            size, fresh = sum(one.size + gap * one.first for one in held), 0
        size, fresh = size + piece.size + gap * (piece.first and bool(held)), fresh + 1
        held.append(piece)
    if fresh:
        yield _chunk(held)


def blocks_of(text: str) -> list[Block]:
    """The blocks of a plain text or of markdown: form feeds end pages, lines that begin with # are headings."""
    outline = _Outline()
    pages = text.split(_PAGE)
    for number, page in enumerate(pages, 1):
        at = number if len(pages) > 1 else None
        for part in _BLANK.split(page):
            lines: list[str] = []
            for line in part.strip("\n").split("\n"):
                if (heading := _HEADING.fullmatch(line)) is None:
                    lines.append(line)
                    continue
                outline.text("\n".join(lines), at)
                # By hand, for a pattern that ends in optional blanks takes hours for a line with many of them.
                named = heading[2].rstrip(" \t").rstrip("#").rstrip(" \t")
                outline.heading(len(heading[1]), named or heading[2][0], at)
                lines = []
            outline.text("\n".join(lines), at)
    return outline.done()


def parsed_blocks(data: Mapping[str, Any]) -> list[Block]:
    """The blocks of what a model made of a document: by Docling's structure where there is one, or of its text."""
    structure = data.get("document")
    if isinstance(structure, Mapping) and (found := _structured(structure, data.get("tables") or [])):
        return found
    return blocks_of(str(data.get("markdown") or data.get("text") or ""))


class _Outline:
    """Blocks under their headings. A heading with nothing under it is a block itself, so that it is not lost."""

    def __init__(self) -> None:
        self._found: list[Block] = []
        self._headings: list[tuple[int, str]] = []
        self._bare: tuple[int, Block] | None = None

    def heading(self, level: int, text: str, page: int | None) -> None:
        """What comes is under this one; levels are from 1. One that is too long to be told in each chunk is a text."""
        if len(text) > LONGEST_HEADING:
            self.text(text, page)
            return
        if self._bare is not None and level <= self._bare[0]:
            self._found.append(self._bare[1])
        self._headings = [one for one in self._headings if one[0] < level]
        self._bare = level, Block(text, page, self._names())
        self._headings.append((level, text))

    def text(self, text: str, page: int | None) -> None:
        """A block, unless it is blank."""
        if text := text.strip():
            self._found.append(Block(text, page, self._names()))
            self._bare = None

    def _names(self) -> tuple[str, ...]:
        return tuple(text for _, text in self._headings)

    def done(self) -> list[Block]:
        """All blocks."""
        if self._bare is not None:
            self._found.append(self._bare[1])
        return self._found


def _structured(structure: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> list[Block]:
    """In reading order. Headers and footers of pages are in Docling's `furniture`, which is passed over."""
    outline = _Outline()
    waiting = [structure.get("body") or {}]
    seen: set[str] = set()
    while waiting:
        node = waiting.pop()
        children = [str(child.get("$ref", "")) for child in node.get("children") or []]
        kind, text = node.get("label"), str(node.get("text") or "").strip()
        ref = str(node.get("self_ref") or "")
        if ref.startswith("#/tables/"):
            place = int(ref.rpartition("/")[2])
            text = str(tables[place].get("markdown") or "").strip() if place < len(tables) else text
        if text and kind in ("title", "section_header"):
            outline.heading(1 if kind == "title" else int(node.get("level") or 1) + 1, text, _page(node))
        else:
            outline.text(text, _page(node))
        # A ref is visited once, whatever the structure says of itself.
        fresh = [child for child in children if child not in seen]
        seen.update(fresh)
        waiting.extend(node for child in reversed(fresh) if (node := _node(structure, child)) is not None)
    return outline.done()


def _node(structure: Mapping[str, Any], ref: str) -> Mapping[str, Any] | None:
    parts = ref.split("/")
    if len(parts) != 3 or not parts[2].isdecimal():
        return None
    listed = structure.get(parts[1])
    place = int(parts[2])
    node = listed[place] if isinstance(listed, Sequence) and place < len(listed) else None
    return node if isinstance(node, Mapping) else None


def _page(node: Mapping[str, Any]) -> int | None:
    where = node.get("prov") or []
    page = where[0].get("page_no") if where else None
    return page if isinstance(page, int) else None


def _pieces(blocks: Sequence[Block], most: int, count: Count) -> Iterator[_Piece]:
    """Pieces of at most `most`, but for a single character that is more by itself."""
    for block in blocks:
        whole = _counted([block.text], count)
        texts = whole if whole[0][1] <= most else list(_split(_counted(_sentences(block.text), count), most, count))
        for place, (text, size) in enumerate(texts):
            yield _Piece(text, size, block, first=place == 0)


def _split(texts: Sequence[tuple[str, int]], most: int, count: Count) -> Iterator[tuple[str, int]]:
    for text, size in texts:
        if size <= most or len(text) == 1:
            yield text, size
            continue
        if text.isspace():
            # Nothing is lost, and a search for words would begin at each blank anew.
            continue
        words = _WORDS.findall(text)
        parts = words if len(words) > 1 else [text[: len(text) // 2], text[len(text) // 2 :]]
        yield from _split(_counted(parts, count), most, count)


def _sentences(text: str) -> list[str]:
    return [found for found in _SENTENCES.findall(text) if found]


def _counted(texts: Sequence[str], count: Count) -> list[tuple[str, int]]:
    return list(zip(texts, count(texts), strict=True))


def _tail(pieces: Sequence[_Piece], most: int, gap: int) -> list[_Piece]:
    """The last pieces that are together at most so large; never all of them, for then nothing would be new."""
    held: list[_Piece] = []
    size = 0
    for piece in reversed(pieces[1:]):
        size += piece.size + gap * piece.first
        if size > most:
            break
        held.append(piece)
    return held[::-1]


def _chunk(pieces: Sequence[_Piece]) -> Chunk:
    text = ""
    for place, piece in enumerate(pieces):
        text += ("\n\n" if place and piece.first else "") + piece.text
    first = pieces[0].block
    return Chunk(text.strip(), first.page, first.headings)
