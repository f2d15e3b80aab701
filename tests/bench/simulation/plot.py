"""A plot of waits as SVG, drawn from numbers alone: the same numbers give the same file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 300
LEFT, TOP, BOTTOM = 56, 34, 44
COLOURS = ("#6b7280", "#0f766e", "#c2410c", "#7c3aed")
_FONT = 'font-family="sans-serif" font-size="11"'


@dataclass(frozen=True, slots=True)
class Panel:
    """One diagram: for each name the waits in seconds at the same percentiles."""

    title: str
    curves: Mapping[str, Sequence[float]]


def svg(panels: Sequence[Panel], shares: Sequence[float], least_s: float = 0.03, most_s: float = 10_000.0) -> str:
    """The panels side by side: percentile of the jobs upward, seconds of wait to the right on a logarithmic scale."""
    names = list(panels[0].curves)
    width = len(panels) * (WIDTH + LEFT) + 20
    height = TOP + HEIGHT + BOTTOM + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for number, panel in enumerate(panels):
        lines += _panel(panel, LEFT + number * (WIDTH + LEFT), shares, least_s, most_s)
    for number, name in enumerate(names):
        x, y = LEFT + number * 190, height - 10
        lines.append(f'<path d="M{x} {y - 4}h24" stroke="{COLOURS[number]}" stroke-width="2"/>')
        lines.append(f'<text x="{x + 30}" y="{y}" {_FONT}>{escape(name)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(panel: Panel, left: float, shares: Sequence[float], least_s: float, most_s: float) -> list[str]:
    low, high = math.log10(least_s), math.log10(most_s)

    def across(seconds: float) -> float:
        spot = (math.log10(min(max(seconds, least_s), most_s)) - low) / (high - low)
        return left + spot * (WIDTH - 20)

    def up(share: float) -> float:
        return TOP + HEIGHT * (1 - share / 100)

    lines = [f'<text x="{left}" y="{TOP - 14}" {_FONT} font-weight="bold">{escape(panel.title)}</text>']
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = across(10.0**power)
        lines.append(f'<path d="M{x:.1f} {TOP}v{HEIGHT}" stroke="#e5e7eb"/>')
        lines.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" {_FONT} text-anchor="middle">{10.0**power:g} s</text>')
    for share in (0, 25, 50, 75, 100):
        y = up(share)
        lines.append(f'<path d="M{left} {y:.1f}h{WIDTH - 20}" stroke="#e5e7eb"/>')
        lines.append(f'<text x="{left - 6}" y="{y + 4:.1f}" {_FONT} text-anchor="end">{share} %</text>')
    for colour, waits in zip(COLOURS, panel.curves.values(), strict=False):
        points = " ".join(f"{across(wait):.1f},{up(share):.1f}" for share, wait in zip(shares, waits, strict=True))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return lines
