from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from catalog.tokenizer import PlainTokenizer
from engine.pairs import longest_first, own_tokens


def words(template: Any = None) -> Tokenizer:
    """A tokenizer of one-letter words."""
    vocabulary = {word: index for index, word in enumerate(("<s>", "</s>", "?", *"abcdefgh"))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if template is not None:
        tokenizer.post_processor = template
    return tokenizer


TEMPLATES = {
    "bert": processors.BertProcessing(("</s>", 1), ("<s>", 0)),
    "roberta": processors.RobertaProcessing(("</s>", 1), ("<s>", 0)),
    "typed": processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 1)]
    ),
    "none": None,
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("direction", ["right", "left"])
@given(one=st.text("ab ", max_size=30), other=st.text("cd ", max_size=30), most=st.integers(4, 30))
def test_a_pair_is_put_together_and_cut_as_the_library_does(
    name: str, direction: str, one: str, other: str, most: int
) -> None:
    library = words(TEMPLATES[name])
    plain = PlainTokenizer(library.to_str())
    uncut = library.encode(one, other)
    library.enable_truncation(most, strategy="longest_first", direction=direction)
    expected = library.encode(one, other)
    own = own_tokens(plain, [one, other])
    pair = longest_first(plain.pair_template(), own[one], own[other], most, keep_end=direction == "left")
    assert pair.tokens.ids == expected.ids
    assert pair.tokens.type_ids == expected.type_ids
    assert pair.counted == len(uncut.ids)
    assert pair.cut == (len(uncut.ids) > most)


def test_a_literal_in_a_pair_stays_text() -> None:
    plain = PlainTokenizer(words(TEMPLATES["bert"]).to_str())
    own = own_tokens(plain, ["a </s>", "<s> b"])
    assert not {0, 1} & {index for ids in own.values() for index in ids}


def test_a_text_in_many_pairs_is_read_once() -> None:
    plain = PlainTokenizer(words(TEMPLATES["bert"]).to_str())
    assert own_tokens(plain, ["a", "b", "a"]) == {"a": [3], "b": [4]}
    assert own_tokens(plain, []) == {}
