"""A picture of a flooded room, drawn: no photo of anybody's, and the same for equal claims."""

from __future__ import annotations

import random
from io import BytesIO

from PIL import Image, ImageDraw, ImageFilter

from examples.claims.cases import Claim

SIZE = (640, 480)
_FLOOR = 330


def photo(claim: Claim) -> bytes:
    """A JPEG of the room: wall, window, sofa, a tide mark on the plaster, and water as high as the claim has it."""
    dice = random.Random(claim.number)  # noqa: S311  # only to draw with
    width, height = SIZE
    room = Image.new("RGB", SIZE, (226, 218, 200))
    pen = ImageDraw.Draw(room)
    pen.rectangle((0, _FLOOR, width, height), fill=(134, 96, 62))
    for x in range(0, width, 58):
        pen.line((x, _FLOOR, x - 70, height), fill=(104, 72, 46), width=2)
    pen.rectangle((420, 60, 570, 210), fill=(150, 186, 214), outline=(250, 250, 246), width=9)
    pen.line((495, 60, 495, 210), fill=(250, 250, 246), width=6)
    pen.rounded_rectangle((60, 220, 330, 300), 16, fill=(120, 52, 60))
    pen.rounded_rectangle((48, 270, 342, 385), 14, fill=(142, 64, 72))
    level = height - int(claim.water * height) - 40
    stained = Image.new("L", SIZE, 0)
    marks = ImageDraw.Draw(stained)
    marks.rectangle((0, min(level, _FLOOR) - 60, width, _FLOOR), fill=90)
    for _ in range(14):
        x, r = dice.randrange(width), dice.randrange(20, 70)
        marks.ellipse((x - r, _FLOOR - 90 - r // 2, x + r, _FLOOR - 50 + r // 2), fill=dice.randrange(60, 120))
    room.paste((120, 104, 74), mask=stained.filter(ImageFilter.GaussianBlur(9)))
    water = Image.new("L", SIZE, 0)
    ImageDraw.Draw(water).rectangle((0, level, width, height), fill=170)
    room.paste((96, 104, 96), mask=water.filter(ImageFilter.GaussianBlur(3)))
    ripples = ImageDraw.Draw(room)
    for _ in range(60):
        x, y = dice.randrange(width), dice.randrange(level, height)
        ripples.line((x, y, x + dice.randrange(15, 60), y), fill=(150, 158, 150), width=1)
    made = BytesIO()
    room.save(made, "JPEG", quality=88)
    return made.getvalue()
