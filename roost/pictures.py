"""Pictures in memory as files that the server reads. PNG, so that nothing of a picture is lost."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roost.errors import RequestRefused

_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}
"""PNG's colour type by the number of channels: grey, grey with alpha, RGB, RGB with alpha."""


def is_picture(value: object) -> bool:
    """Whether it is a picture of PIL, which is not imported for this."""
    return any(kind.__module__ == "PIL.Image" and kind.__name__ == "Image" for kind in type(value).__mro__)


def png(picture: Any) -> bytes:
    """A picture of PIL as a file."""
    out = io.BytesIO()
    kept = picture if picture.mode in {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"} else picture.convert("RGB")
    kept.save(out, "PNG", compress_level=1)
    return out.getvalue()


def png_of_array(array: NDArray[Any], where: str) -> bytes:
    """Pixels of shape (height, width) or (height, width, 1 to 4), uint8, as a file. Raises RequestRefused."""
    pixels = array[:, :, np.newaxis] if array.ndim == 2 else array
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in _COLOURS or 0 in pixels.shape:
        raise RequestRefused(
            f"{where} is pixels: uint8 of shape (height, width) or (height, width, channels), "
            f"not {array.dtype} of {array.shape}.",
            code="invalid_item",
            param=where,
        )
    height, width, channels = pixels.shape
    # Each row begins with the filter that it was written with: none.
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 1)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
