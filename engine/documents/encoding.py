"""Text out of bytes. What the whole file says decides; a guess is told, and what cannot be guessed is refused.

The order: the charset that the caller tells, a byte-order mark, UTF-8, UTF-16 by its zeros, then a guess among the
encodings that offices have used, over all the lines that hold anything but ASCII, wherever in the file they stand.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass

from engine.documents.errors import UnknownEncoding, UnsupportedFormat

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GUESSED = {
    "cp932": "cp932",
    "euc_jis_2004": "euc_jp",
    "gb18030": "gb18030",
    "big5": "big5",
    "cp949": "cp949",
    "cp1252": "cp1252",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1253": "cp1253",
    "cp1254": "cp1254",
    "cp1255": "cp1255",
    "cp1257": "cp1257",
    "koi8_r": "koi8_r",
}
"""What a guess may come to, by the name that the detector gives its like."""

_SAMPLE = 128 * 1024
"""Bytes of lines beyond ASCII that a guess looks at, taken evenly from the whole file."""

_MOST_NULS = 0.01
"""Of UTF-8: so many U+0000 are a slip of the program that wrote the text, more are a sign that it is none."""

_LEAST_CHAOS = 0.05
_MOST_CHAOS = 0.2
_MOST_STRAYS = 0.02
_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)
_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
_MARK = "\u00a2-\u00a9\u00ac\u00ae-\u00b9\u00bc-\u00bf\u00d7\u00f7\u0192\u02c6\u02dc\u2020-\u2022\u2030"
_STRAY = re.compile(
    rf"[{_LATIN}][{_MARK}][{_LATIN}]"
    rf"|[\u00a2-\u00a5\u00a8\u00ac\u00af\u00b4\u00b8\u02c6\u02dc][{_LATIN}]"
    rf"|[{_LATIN}][\u0370-\u06ff]|[\u0370-\u06ff][{_LATIN}]"
    "|[\u4e00-\u9fff][\uac00-\ud7a3]|[\uac00-\ud7a3][\u3131-\u318e\u4e00-\u9fff]"
    "|[a-z][\u00c0-\u00d6\u00d8-\u00de\u0152\u0160\u0178\u017d]"
)
"""What no prose has, and what a wrong encoding makes of it: a sign inside a word, or as the first letter of
one; letters of two scripts in a word; a capital after a small letter. Two bytes to a character: Hangul among Hanja."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text, the encoding it was in, and whether that was guessed."""

    text: str
    encoding: str
    guessed: bool = False


def told_charset(format_: str | None) -> str | None:
    """The charset in a media type such as `text/csv; charset=shift_jis`. Raises UnknownEncoding if there is no such."""
    found = _CHARSET.search(format_ or "")
    if found is None:
        return None
    try:
        info = codecs.lookup(found[1])
    except LookupError:
        raise UnknownEncoding(
            f"There is no encoding {found[1]!r}; name one that Python knows, such as cp1252."
        ) from None
    if not getattr(info, "_is_text_encoding", True):
        raise UnknownEncoding(f"{found[1]!r} is no encoding of text; name one such as cp1252.")
    return info.name


def decode(data: bytes, charset: str | None = None) -> Decoded:
    """The whole file as text. Raises UnknownEncoding, or UnsupportedFormat if it is no text at all."""
    if charset is not None:
        return _told(data, charset)
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _told(data[len(mark) :], name)
    text = _strict(data, "utf-8")
    if text is not None and "\x00" not in text:
        return Decoded(text, "utf-8")
    wide = _wide(data)
    if wide is not None:
        return wide
    if text is not None and text.count("\x00") <= _MOST_NULS * len(text):
        return Decoded(text.replace("\x00", "\ufffd"), "utf-8")
    if b"\x00" in data or _controls(data):
        raise UnsupportedFormat("The file is neither text nor of any format that is read; see its name and its origin.")
    return _guess(data)


def _told(data: bytes, name: str) -> Decoded:
    try:
        return Decoded(data.decode(name).removeprefix("\ufeff"), name)
    except (UnicodeDecodeError, LookupError) as error:
        where = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        raise UnknownEncoding(f"The text is not in {name}, which it is said to be in{where}; name another.") from None


def _wide(data: bytes) -> Decoded | None:
    """UTF-16 without a mark: most characters of markup, tables and prose have a zero byte on one side."""
    half = len(data) // 2
    if half < 2 or len(data) % 2:
        return None
    for name, zeros in (("utf-16-le", data[1::2].count(0)), ("utf-16-be", data[::2].count(0))):
        if zeros >= 0.3 * half:
            try:
                text = data.decode(name)
            except UnicodeDecodeError:
                continue
            if "\x00" not in text:
                return Decoded(text, name, guessed=True)
    return None


def _controls(data: bytes) -> bool:
    """Whether so many control characters are in it that it is no text."""
    rare = sum(data.count(byte) for byte in (*range(1, 7), *range(14, 27), *range(28, 32)))
    return rare > 0.01 * len(data)


def _guess(data: bytes) -> Decoded:
    from charset_normalizer import from_bytes

    sample = _beyond_ascii(data)
    matches = from_bytes(sample, steps=1, chunk_size=len(sample), threshold=_MOST_CHAOS, enable_fallback=False)
    found: list[tuple[float, int, str, str]] = []
    for place, match in enumerate(matches):
        names = [_GUESSED[like] for like in match.could_be_from_charset if like in _GUESSED]
        name = "cp1252" if "cp1252" in names else next(iter(names), None)
        text = None if name is None else _strict(data, name)
        if name is None or text is None or _strays(text) or _wrong_script(text):
            continue
        # Of what looks alike the West's comes first among single bytes, and two bytes to a character before these.
        preferred = 0 if not name.startswith("cp125") else 1 if name == "cp1252" else 2
        found.append((max(match.chaos, _LEAST_CHAOS), preferred * 100 + place, name, text))
    if not found:
        raise UnknownEncoding
    _, _, name, text = min(found)
    return Decoded(text, name, guessed=True)


def _beyond_ascii(data: bytes) -> bytes:
    """The lines that hold anything but ASCII; of many, some from all over the file."""
    lines = [line for line in re.split(rb"[\r\n]+", data) if not line.isascii()]
    size = sum(map(len, lines))
    step = max(1, -(-size // _SAMPLE))
    return b"\n".join(line[:4096] for line in lines[::step])[: 2 * _SAMPLE]


def _strict(data: bytes, name: str) -> str | None:
    try:
        return data.decode(name)
    except UnicodeDecodeError:
        return None


def _strays(text: str) -> bool:
    """Whether more than a slip here and there looks wrong."""
    return sum(1 for _ in _STRAY.finditer(text)) > _MOST_STRAYS * sum(char > "\x7f" for char in text)


def _wrong_script(text: str) -> bool:
    """Whether it has characters that no text has: controls of the upper half, private ones, half-width kana alone."""
    beyond = {char for char in text if char > "\x7f"}
    kana = sum("\uff61" <= char <= "\uff9f" for char in beyond)
    odd = any("\x80" <= char <= "\x9f" or unicodedata.category(char) in ("Co", "Cn") for char in beyond)
    return odd or (bool(beyond) and kana == len(beyond))
