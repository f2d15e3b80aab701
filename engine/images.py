"""From the bytes of an image to its pixels as they are displayed: one RGB picture, whatever the file was.

What a file is, its content says, never its name. Limits are checked on what the file declares, before a pixel is
decoded. The EXIF orientation is applied and a broken one ignored; of an animation the first frame is taken; what is
transparent is laid on white; more than 8 bits a channel are scaled down to 8. Colour profiles are not applied. Pillow
is imported inside calls.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.errors import ItemRejected

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

MAX_BYTES = 16 * 2**20
MAX_PIXELS = 64 * 10**6
"""Of one image, declared: some 200 MB once it is decoded."""
MAX_RATIO = 200
"""Of the longer side to the shorter: models scale by the shorter one, so a thin strip would become huge."""

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Those with a signature whose decoders are in Pillow itself and are looked after."""

_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_PLAIN = ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV")
_ORIENTATION, _TIFF_BITS = 274, 258
"""Numbers of tags."""


class ImageTooLarge(ItemRejected):
    """The image is larger than is read; the message names the limit. Send a smaller one."""

    code = "image_too_large"


class ImageUnsupported(ItemRejected):
    """The file is of a kind that is not read; send a JPEG or a PNG."""

    code = "image_unsupported"


class ImageDamaged(ItemRejected):
    """The image is cut short or broken; send it whole."""

    code = "image_damaged"


def only_image(payload: Mapping[str, Any]) -> Image.Image | ItemRejected:
    """The one image of an item, or why there is none that can be read."""
    images = payload.get("images")
    if not isinstance(images, list | tuple) or not images:
        return ItemRejected("The item has no image.", param="images")
    if len(images) > 1:
        return ItemRejected(f"The item has {len(images)} images; send each as an item of its own.", param="images")
    data = images[0].get("data") if isinstance(images[0], Mapping) else None
    if not isinstance(data, bytes):
        return ItemRejected("The image has no data.", param="images[0].data")
    try:
        return decode(data, "images[0].data")
    except ItemRejected as error:
        return error


def decode(data: bytes, param: str) -> Image.Image:
    """The first frame of an image file as RGB, turned as it is displayed. `param` names the field in errors.

    Raises ImageTooLarge, ImageUnsupported or ImageDamaged, and ItemRejected for a strip too thin for any model.
    """
    from PIL import Image, UnidentifiedImageError

    # What Pillow warns of is either checked here or no concern of the caller.
    warnings.filterwarnings("ignore", module=r"PIL\b")
    if len(data) > MAX_BYTES:
        raise ImageTooLarge(f"The image has {len(data)} bytes; up to {MAX_BYTES} are read.", param=param)
    canvas = _webp_canvas(data)
    if canvas is not None:
        _check_size(*canvas, param)
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        _check_size(*image.size, param)
        image.load()
        return _as_rgb(_turned(image), param)
    except ItemRejected:
        raise
    except UnidentifiedImageError as error:
        raise _unidentified(data, param) from error
    except Image.DecompressionBombError as error:
        raise ImageTooLarge(f"The image declares more than {MAX_PIXELS} pixels.", param=param) from error
    except MemoryError as error:
        raise ImageTooLarge("There is no memory to decode the image; send a smaller one.", param=param) from error
    except Exception as error:
        # Decoders raise whatever they trip over, and its text may hold anything.
        raise ImageDamaged("The image is cut short or broken; send it whole.", param=param) from error


def within(image: Image.Image, longest: int) -> Image.Image:
    """An image of which no side is longer than so many pixels: as it is, or scaled down."""
    from PIL import Image

    if max(image.size) <= longest:
        return image
    scale = longest / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)


def widened(image: Image.Image, ratio: int) -> Image.Image:
    """An image whose longer side is at most `ratio` times the shorter: as it is, or in a corner of a white field."""
    from PIL import Image

    least = -(-max(image.size) // ratio)
    if min(image.size) >= least:
        return image
    field = Image.new("RGB", (max(image.width, least), max(image.height, least)), "white")
    field.paste(image)
    return field


def _check_size(width: int, height: int, param: str) -> None:
    if width < 1 or height < 1:
        raise ImageDamaged(f"The image says that it is {width}x{height} pixels; that is none.", param=param)
    if width * height > MAX_PIXELS:
        message = f"The image says that it is {width}x{height} pixels; up to {MAX_PIXELS} are read."
        raise ImageTooLarge(message, param=param)
    if max(width, height) > MAX_RATIO * min(width, height):
        message = f"The image is {width}x{height}; one side may be up to {MAX_RATIO} times the other. Cut it in pieces."
        raise ItemRejected(message, param=param)


def _webp_canvas(data: bytes) -> tuple[int, int] | None:
    """Width and height that an extended WebP declares: its decoder makes room for them before it tells them."""
    if data[:4] != b"RIFF" or data[8:16] != b"WEBPVP8X" or len(data) < 30:
        return None
    return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1


def _unidentified(data: bytes, param: str) -> ItemRejected:
    """Known by its first bytes but not to be opened: broken. Otherwise of a kind that is not read."""
    from PIL import Image

    for name in FORMATS:
        accept = Image.OPEN[name][1] if name in Image.OPEN else None
        if accept is not None and len(data) > 2 and accept(data[:16]) is True:
            return ImageDamaged(f"The file begins as {name} does, and is broken; send it whole.", param=param)
    return ImageUnsupported(f"The file is no image that is read: {', '.join(FORMATS)}.", param=param)


def _turned(image: Image.Image) -> Image.Image:
    """The image turned and mirrored as its EXIF orientation says; one that cannot be read, or is none, is left out."""
    from PIL import Image

    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception:  # noqa: BLE001 - a broken EXIF block fails in any way
        return image
    turns = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    turn = turns.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)


def _as_rgb(image: Image.Image, param: str) -> Image.Image:
    from PIL import Image

    if image.mode in _SIXTEEN_BITS or (image.mode == "I" and image.format == "PPM"):
        return _from_deep(image)
    if image.has_transparency_data:
        whole = image.convert("RGBA")
        paper = Image.new("RGBA", whole.size, "white")
        paper.alpha_composite(whole)
        return paper.convert("RGB")
    if image.mode not in _PLAIN:
        message = f"The image's pixels are of kind {image.mode!r}, which is not read; send 8 or 16 bits a channel."
        raise ImageUnsupported(message, param=param)
    return image.convert("RGB")


def _from_deep(image: Image.Image) -> Image.Image:
    """Grey of up to 16 bits as RGB of 8: the highest value there can be is white."""
    import numpy as np
    from PIL import Image

    bits = getattr(image, "tag_v2", {}).get(_TIFF_BITS, (16,))[0]
    top = 2**bits - 1 if bits in (10, 12, 14) else 65535
    scaled = np.minimum(np.arange(65536, dtype=np.uint32) * 255 // top, 255).astype(np.uint8)
    grey: NDArray[np.uint8] = scaled[np.clip(np.asarray(image), 0, 65535)]
    return Image.fromarray(grey).convert("RGB")
