from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from tests.bench.texts import WORDS, Text, lengths, load_tokenizer, texts, total


@pytest.fixture
def tokenizer() -> Tokenizer:
    """A tokenizer with one token a word and the two special tokens of a BERT."""
    made = Tokenizer(WordLevel({word: n for n, word in enumerate(["[CLS]", "[SEP]", "?", *dict.fromkeys(WORDS)])}, "?"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    return made


def test_the_mix_holds_in_every_block_of_twenty() -> None:
    wanted = lengths(200)
    for start in range(0, 200, 20):
        block = wanted[start : start + 20]
        shares = [sum(low <= n <= high for n in block) for low, high in ((8, 32), (64, 200), (300, 512))]
        assert shares == [14, 5, 1]


def test_the_set_is_the_same_every_time(tokenizer: Tokenizer) -> None:
    assert texts(40, tokenizer, 256) == texts(40, tokenizer, 256)


def test_a_longer_set_begins_with_the_shorter_one(tokenizer: Tokenizer) -> None:
    assert texts(60, tokenizer, 256)[:40] == texts(40, tokenizer, 256)


def test_texts_have_the_wanted_lengths_with_special_tokens(tokenizer: Tokenizer) -> None:
    assert [text.tokens for text in texts(40, tokenizer, 1000)] == lengths(40)


def test_tokens_stop_at_what_the_model_reads(tokenizer: Tokenizer) -> None:
    assert max(text.tokens for text in texts(40, tokenizer, 256)) == 256


def test_total_adds_the_tokens() -> None:
    assert total([Text("a", 3), Text("b", 4)]) == 7


def test_a_loaded_tokenizer_counts_whole_texts(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert len(load_tokenizer(tmp_path).encode("the river " * 10).ids) == 22
