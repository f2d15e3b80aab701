"""Text out of bytes: never wrong in silence."""

# ruff: noqa: RUF001 - letters of many scripts
from __future__ import annotations

import pytest

from engine.documents.encoding import decode, told_charset
from engine.documents.errors import UnknownEncoding, UnsupportedFormat

WEST = "Name;Straße\nMüller;„fein“ – 12,50 €\nÆrø;naïve café\n"
TEXTS = {
    "cp1252": WEST,
    "cp1250": "Imię;Miasto\nŁukasz;Łódź\nŻaneta;Gdańsk\n",
    "cp1251": "Имя;Город\nИван;Москва\nМария;Тверь\n",
    "cp932": "名前,住所\n田中太郎,東京都千代田区\n",
    "euc_jp": "名前,住所\n田中太郎,東京都千代田区\n",
    "gb18030": "姓名,城市\n张伟,北京\n王芳,上海市浦东新区\n",
    "big5": "姓名,城市\n張偉,臺北市\n王芳,高雄\n",
    "cp949": "이름,도시\n김철수,서울특별시\n",
}


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("before", ["", "plain ascii, row after row\n" * 3000])
def test_old_encodings_are_told_apart_wherever_their_letters_stand(encoding: str, before: str) -> None:
    found = decode((before + TEXTS[encoding]).encode(encoding))
    assert found.text == before + TEXTS[encoding]
    assert found.guessed


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_unicode_is_known_without_a_guess_or_by_its_zeros(encoding: str) -> None:
    assert decode(WEST.encode(encoding)).text == WEST


def test_what_makes_no_sense_in_any_encoding_is_refused() -> None:
    with pytest.raises(UnknownEncoding):
        decode("café naïve, Müller\n".encode("mac_roman"))


def test_a_slip_in_a_long_text_does_not_refuse_it() -> None:
    text = WEST * 30 + "a mis©take\n"
    assert decode(text.encode("cp1252")).text == text


def test_what_is_no_text_is_no_text() -> None:
    with pytest.raises(UnsupportedFormat):
        decode(bytes(range(256)) * 8)


def test_a_slip_of_a_zero_in_a_text_is_replaced() -> None:
    assert decode(b"a word " * 50 + b"\x00").text.endswith("word \ufffd")


def test_what_the_caller_tells_is_believed_or_refused() -> None:
    assert told_charset("text/csv") is None
    assert told_charset('text/csv; charset="Shift_JIS"') == "shift_jis"
    assert decode("Élodie".encode("mac_roman"), "mac_roman").text == "Élodie"
    for said in ("charset=klingon", "charset=hex"):
        with pytest.raises(UnknownEncoding):
            told_charset(said)
    with pytest.raises(UnknownEncoding, match="byte 1"):
        decode("aé".encode("cp1252"), "utf-8")
