"""Bytes of images as pixels: what is displayed is what a model sees. Odd files are Pillow's own test files."""

from __future__ import annotations

import io
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from engine.errors import ItemRejected
from engine.images import FORMATS, MAX_BYTES, decode, only_image, widened, within

FILES = Path(__file__).parents[2] / "files" / "images"
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)

SHARP = {"quality": 100, "subsampling": "4:4:4"}
"""Of an AVIF that keeps its colours."""


def file(image: Image.Image, kind: str, **more: Any) -> bytes:
    written = io.BytesIO()
    image.save(written, kind, **more)
    return written.getvalue()


def one(colour: object, mode: str = "RGB", size: tuple[int, int] = (3, 2)) -> Image.Image:
    return Image.new(mode, size, colour)  # type: ignore[arg-type]  # a colour's form depends on the mode


def corners() -> Image.Image:
    """Red, green and blue in three corners and white elsewhere, 32x16: no turn of it looks like another."""
    image = one(WHITE, size=(32, 16))
    image.paste(RED, (0, 0, 8, 8))
    image.paste(GREEN, (24, 0, 32, 8))
    image.paste(BLUE, (0, 8, 8, 16))
    return image


def png_header(width: int, height: int, bits: int = 1) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def refused(data: bytes) -> str:
    with pytest.raises(ItemRejected) as caught:
        decode(data, "images[0].data")
    assert caught.value.param == "images[0].data"
    assert not caught.value.retryable
    return caught.value.code


def pixel(data: bytes, x: int = 0, y: int = 0) -> tuple[int, int, int]:
    image = decode(data, "image")
    assert image.mode == "RGB"
    return image.getpixel((x, y))  # type: ignore[return-value]  # RGB has three


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_its_picture(kind: str) -> None:
    lossless: dict[str, dict[str, Any]] = {
        "WEBP": {"lossless": True},
        "JPEG": {"quality": 100, "subsampling": 0},
        "AVIF": SHARP,
    }
    found = decode(file(corners(), kind, **lossless.get(kind, {})), "image")
    assert np.abs(np.asarray(found, dtype=int) - np.asarray(corners(), dtype=int)).mean() < 3


@pytest.mark.parametrize("kind", ["AVIF", "JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_as_it_is_displayed(kind: str, orientation: int) -> None:
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    exif = Image.Exif()
    exif[274] = orientation
    more = SHARP if kind == "AVIF" else {"quality": 95} if kind == "JPEG" else {}
    stored = corners().transpose(undo[orientation]) if orientation in undo else corners()
    found = decode(file(stored, kind, exif=exif, **more), "image")
    assert found.size == (32, 16)
    assert np.abs(np.asarray(found, dtype=int) - np.asarray(corners(), dtype=int)).mean() < 12


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_is_none_is_left_out(orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    assert decode(file(corners(), "PNG", exif=exif), "image").tobytes() == corners().tobytes()


def test_broken_exif_is_left_out() -> None:
    broken = file(corners(), "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\x12" * 9)
    assert decode(broken, "image").tobytes() == corners().tobytes()
    assert decode((FILES / "invalid-exif-without-x-resolution.jpg").read_bytes(), "image").size == (300, 200)


def test_a_turned_photo_of_two_pixels_stands_upright() -> None:
    assert decode((FILES / "orientation_rectangle.jpg").read_bytes(), "image").size == (1, 2)


def test_what_is_transparent_is_white() -> None:
    half = one((255, 0, 0, 128), "RGBA")
    assert pixel(file(one((255, 0, 0, 0), "RGBA"), "PNG")) == WHITE
    assert pixel(file(half, "PNG")) == (255, 127, 127)
    assert pixel(file(half, "WEBP", lossless=True)) == (255, 127, 127)
    assert pixel(file(one((0, 0), "LA"), "PNG")) == WHITE
    assert pixel(file(one(RED), "PNG", transparency=RED)) == WHITE
    palette = one((255, 0, 0, 255), "RGBA").quantize(2)
    assert pixel(file(palette, "PNG", transparency=palette.getpixel((0, 0)))) == WHITE


def test_other_kinds_of_pixels_become_rgb() -> None:
    assert pixel(file(one(1, "1"), "PNG")) == WHITE
    assert pixel(file(one(77, "L"), "PNG")) == (77, 77, 77)
    assert pixel(file(one(RED).quantize(2), "GIF")) == RED
    assert pixel(file(one((0, 255, 255, 0), "CMYK"), "TIFF")) == RED
    assert pixel(file(one((0, 255, 255, 0), "CMYK"), "JPEG", quality=100))[0] > 240


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_are_scaled_to_eight(kind: str) -> None:
    deep = Image.fromarray(np.array([[0, 257 * 90, 65535]], dtype=np.uint16))
    found = np.asarray(decode(file(deep, kind), "image"))
    assert found.tolist() == [[[0, 0, 0], [90, 90, 90], [255, 255, 255]]]


def test_pixels_of_no_known_range_are_refused() -> None:
    assert refused(file(one(0.5, "F"), "TIFF")) == "image_unsupported"
    assert refused(file(one(70_000, "I"), "TIFF")) == "image_unsupported"


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
def test_of_an_animation_the_first_frame_is_taken(kind: str) -> None:
    more = {"lossless": True} if kind == "WEBP" else {"quality": 100} if kind == "AVIF" else {}
    moving = file(one(RED), kind, save_all=True, append_images=[one(GREEN), one(BLUE)], **more)
    found = [pixel(moving) for _ in range(3)]
    assert found == [found[0]] * 3
    assert np.abs(np.subtract(found[0], RED)).max() < 8


def test_odd_extents_of_a_later_frame_do_no_harm() -> None:
    odd = (FILES / "decompression_bomb_extents.gif").read_bytes()
    first = decode(odd, "image")
    assert first.size == (100, 100)
    assert decode(odd, "image").tobytes() == first.tobytes()
    assert decode((FILES / "mode_palette_alpha.png").read_bytes(), "image").size == (128, 64)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param((FILES / "decompression_bomb.gif").read_bytes(), "image_too_large", id="gif"),
        pytest.param((FILES / "decompression_bomb.ico").read_bytes(), "image_unsupported", id="ico"),
        pytest.param(png_header(60_000, 60_000), "image_too_large", id="png"),
        pytest.param(png_header(10_000, 10_000), "image_too_large", id="png between the limits"),
        pytest.param(b"P6 99999999 99999999 255 ", "image_too_large", id="ppm"),
        pytest.param(b"RIFF\x1e\0\0\0WEBPVP8X\n\0\0\0\2\0\0\0" + b"\xff" * 6 + b"\0" * 8, "image_too_large", id="webp"),
        pytest.param(b"\xff" * (MAX_BYTES + 1), "image_too_large", id="bytes"),
    ],
)
def test_a_bomb_is_refused_at_once_and_takes_no_memory(data: bytes, code: str) -> None:
    decode(file(one(RED), "PNG"), "image")
    process = psutil.Process()
    before, began = process.memory_info().rss, time.monotonic()
    assert refused(data) == code
    assert time.monotonic() - began < 1
    assert process.memory_info().rss - before < 32 * 2**20


def test_a_strip_too_thin_for_any_model_is_refused() -> None:
    assert decode(file(one(RED, size=(200, 1)), "PNG"), "image").size == (200, 1)
    assert refused(file(one(RED, size=(201, 1)), "PNG")) == "invalid_item"
    assert refused(png_header(1, 60_000_000)) == "invalid_item"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"])
def test_an_image_that_is_cut_short_is_damaged(kind: str) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 40, 3), dtype=np.uint8))
    whole = file(noise, kind)
    assert refused(whole[: len(whole) // 2]) == "image_damaged"


@pytest.mark.parametrize("name", ["broken.png", "zero_width.gif", "libtiff_segfault.tif"])
def test_a_broken_file_is_damaged(name: str) -> None:
    assert refused((FILES / name).read_bytes()) == "image_damaged"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"P",
        b"hello",
        b"%PDF-1.7\n",
        b"PK\x03\x04" + b"\0" * 40,
        b"<svg/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        b"\0" * 64,
    ],
)
def test_what_is_no_image_is_unsupported(data: bytes) -> None:
    assert refused(data) == "image_unsupported"


def test_the_content_says_what_a_file_is() -> None:
    item = {"images": [{"data": file(one(RED), "GIF"), "format": "image/jpeg"}]}
    image = only_image(item)
    assert isinstance(image, Image.Image)
    assert image.getpixel((0, 0)) == RED


@pytest.mark.parametrize("images", [None, [], [{}], [{"data": "text"}], [{"data": b"x"}] * 2, [{"data": b"x"}]])
def test_an_item_without_one_image_is_refused(images: object) -> None:
    found = only_image({"text": "a cat"} if images is None else {"images": images})
    assert isinstance(found, ItemRejected)


def test_several_images_are_told_so() -> None:
    found = only_image({"images": [{"data": b"x"}, {"data": b"y"}]})
    assert isinstance(found, ItemRejected)
    assert "2 images" in found.message


def test_a_large_image_is_scaled_down_in_proportion_and_a_small_one_is_left() -> None:
    small = corners()
    assert within(small, 32) is small
    assert within(small, 8).size == (8, 4)
    assert within(one(RED, size=(200, 1)), 50).size == (50, 1)


def test_a_thin_image_is_laid_on_white_and_another_is_left() -> None:
    assert widened(image := corners(), 2) is image
    field = widened(one(RED, size=(100, 3)), 16)
    assert field.size == (100, 7)
    assert [field.getpixel(place) for place in ((0, 0), (99, 2), (99, 3))] == [RED, RED, WHITE]
    assert widened(one(RED, size=(3, 100)), 16).size == (7, 100)
