"""One vector for each token (or image patch) of an item: how they are written, and read where a caller sends them.

A finished multivector is the map `{"token_dims", "num_tokens", "dtype", "values"}`; `values` are little-endian bytes,
one token's vector after the other. `float32` and `float16` are the values as they are. `int8` is `round(x / scale)`
with one `scale = max|x| / 127` for the whole item, given as `"scale"`, so that MaxSim over them ranks as it does over
the originals. Bits are not given: of so few dimensions they would keep next to nothing. Pure, numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog.options import OutputDtype
from engine.errors import ItemRejected, NotFinite

Matrix = NDArray[np.float32]

_NOT_HALF = "A value of these vectors does not fit float16; ask for float32."


def finish_multivector(rows: NDArray[Any], dtype: OutputDtype) -> dict[str, Any] | NotFinite | ItemRejected:
    """The finished map of one item's vectors, [tokens, width]; perhaps none of them.

    NotFinite where a value is NaN or infinite, or too large for the type; ItemRejected for a type of other vectors.
    """
    values: Matrix = np.asarray(rows, dtype=np.float32)
    if values.ndim != 2:
        raise ValueError(f"an array of shape {values.shape} is not one vector for each token")
    if not np.isfinite(values).all():
        return NotFinite()
    found: dict[str, Any] = {"token_dims": values.shape[1], "num_tokens": values.shape[0], "dtype": dtype.value}
    match dtype:
        case OutputDtype.FLOAT32:
            return found | {"values": values.astype("<f4").tobytes()}
        case OutputDtype.FLOAT16:
            with np.errstate(over="ignore"):
                half = values.astype("<f2")
            return found | {"values": half.tobytes()} if np.isfinite(half).all() else NotFinite(_NOT_HALF)
        case OutputDtype.INT8:
            peak = float(np.abs(values).max(initial=0.0))
            scale = np.float32(peak / 127) if peak > 0 else np.float32(1)
            with np.errstate(divide="ignore", invalid="ignore"):
                whole = np.nan_to_num(np.clip(np.rint(values / scale), -127, 127)).astype(np.int8)
            return found | {"values": whole.tobytes(), "scale": float(scale)}
        case _:
            return ItemRejected(f"There is no {dtype.value} multivector.", param="options.output_dtype")


def read_multivector(payload: Mapping[str, Any], width: int) -> Matrix | ItemRejected | None:
    """The vectors that a caller sent of an item, [tokens, width]; None if there are none, or why they do not serve."""
    sent = payload.get("multivector")
    if sent is None:
        return None
    if not isinstance(sent, Mapping) or sent.get("token_dims") != width:
        dims = sent.get("token_dims") if isinstance(sent, Mapping) else "no"
        return ItemRejected(f"The vectors have {dims} dimensions; the model's have {width}.", param="multivector")
    return np.frombuffer(sent["values"], dtype="<f4").reshape(-1, width)
