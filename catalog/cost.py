"""What work costs, in milliseconds of a device. Pure; a guess until it has been fitted to real batches.

A batch of n items padded to L tokens takes `base + per_token·n·L + per_square·n·L²` (CostCoefficients). A spec's own
coefficients win. Without them: a transformer's forward pass takes about 2 floating-point operations per weight and
token, and its attention 4·layers·hidden more per pair of tokens (Kaplan et al., "Scaling Laws for Neural Language
Models", 2020, table 1, forward pass), at the rates below. They are orders of magnitude, good for choosing a queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.schema import CostCoefficients, Spec

CPU_FLOPS = 2e11
"""Operations per second that a CPU core reaches on a small model in float32, with idle embedding rows counted in."""

GPU_FLOPS = 2e13
"""Operations per second that a data-centre card reaches on a small model, far under its peak."""

CPU_BASE_MS = 2.0
"""What any batch takes on a CPU, however small: Python and some sixty small kernels."""

GPU_BASE_MS = 5.0
"""What any batch takes on a card: as many launches, and the copies there and back."""

WEIGHTLESS = CostCoefficients(base=0.05, per_token=0.0001)
"""A model without weights: bookkeeping only."""


def coefficients(spec: Spec, device: str, *, layers: int = 0, hidden: int = 0) -> CostCoefficients:
    """The spec's own coefficients, else the guess for a kind of device (`cpu`, `cuda`, `cuda:1`; all else is a CPU).

    `layers` and `hidden` add the share of attention that grows with the square of the length, where they are known.
    """
    if spec.cost is not None:
        return spec.cost
    if spec.parameters == 0:
        return WEIGHTLESS
    on_gpu = device.startswith("cuda")
    per_ms = (GPU_FLOPS if on_gpu else CPU_FLOPS) / 1000
    return CostCoefficients(
        base=GPU_BASE_MS if on_gpu else CPU_BASE_MS,
        per_token=2 * spec.parameters / per_ms,
        per_square=4 * layers * hidden / per_ms,
    )


def predict(spec: Spec, lengths: Sequence[int], device: str) -> list[float]:
    """Milliseconds of each item of one job, given their lengths in tokens.

    The batch's own cost is shared out evenly, so that the sum is what the job takes when it runs alone in one batch
    without padding.
    """
    if not lengths:
        return []
    found = coefficients(spec, device)
    share = found.base / len(lengths)
    return [share + found.item(length) for length in lengths]
