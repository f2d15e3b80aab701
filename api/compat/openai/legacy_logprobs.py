"""Log probabilities in the form of POST /v1/completions: parallel lists, and places in the text."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from typing import Any

from api.schemas import Reply


class LegacyLogprobs(Reply):
    r"""One entry for each token. A token that is a part of a character is spelled as `bytes:\xe2\x82`."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


def legacy(found: Sequence[Mapping[str, Any]], text: str, top: int) -> dict[str, Any]:
    """The entries of a text that was made of these tokens. `top` is how many of the likeliest were asked for.

    An offset is a place in `text`, in code points; tokens that `stop` cut off have the place of its end.
    """
    offsets, said, characters = [], 0, getincrementaldecoder("utf-8")("ignore")
    for entry in found:
        offsets.append(min(said, len(text)))
        said += len(characters.decode(bytes(entry["bytes"])))
    likeliest = [{_spelled(one): one["logprob"] for one in (*entry["top_logprobs"], entry)} for entry in found]
    return {
        "tokens": [_spelled(entry) for entry in found],
        "token_logprobs": [entry["logprob"] for entry in found],
        "top_logprobs": likeliest if top else None,
        "text_offset": offsets,
    }


def _spelled(entry: Mapping[str, Any]) -> str:
    raw = bytes(entry["bytes"])
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
