from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.generation.vocabulary import Vocabulary
from tests.small.chatting import chatting


def test_byte_level_tokens_are_the_bytes_of_their_text() -> None:
    tokenizer: Any = chatting().backend_tokenizer
    vocabulary = Vocabulary(tokenizer, tokenizer.get_vocab_size(), [4])
    text = "Zwei Vögel 🦉, naïve\n\t\x00<b>"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert b"".join(map(vocabulary.bytes_of, ids)) == text.encode()
    assert vocabulary.decode(ids) == text
    assert vocabulary.bytes_of(tokenizer.token_to_id("<|im_end|>")) == b"<|im_end|>"
    assert vocabulary.bytes_of(10**6) == b""


def test_sentence_pieces_have_blanks_and_bytes() -> None:
    pieces = {"<unk>": 0, "\u2581owl": 1, "s": 2, "<0xE2>": 3, "\u00e9": 4}
    tokenizer = Tokenizer(models.BPE(vocab=pieces, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    vocabulary = Vocabulary(tokenizer, 5, [0])
    assert [vocabulary.bytes_of(token) for token in range(1, 5)] == [b" owl", b"s", b"\xe2", "é".encode()]


def test_what_a_grammar_is_matched_against_has_the_same_tokens() -> None:
    tokenizer: Any = chatting().backend_tokenizer
    end = tokenizer.token_to_id("<|im_end|>")
    matched = Vocabulary(tokenizer, tokenizer.get_vocab_size() + 7, [end]).matched
    ids = tokenizer.encode(" an öwl", add_special_tokens=False).ids
    assert matched.decode_bytes(ids) == " an öwl".encode()
    assert (matched.eos_tokens, matched.vocab_size) == ([end], tokenizer.get_vocab_size() + 7)
    assert matched.is_special_token(end)
