"""What work costs, in milliseconds of a device. Pure; a guess, for as long as nothing has run.

A batch of n items padded to L units takes `base + per_token·n·L + per_square·n·L²` (CostCoefficients). A spec's own
coefficients win. Without them: a transformer's forward pass takes about 2 floating-point operations per weight and
token, and its attention 4·layers·hidden more per pair of tokens (Kaplan et al., "Scaling Laws for Neural Language
Models", 2020, table 1, forward pass). A unit that is no token counts as the tokens it becomes inside the model. A new
token reads all weights once, which takes longer than computing with them. The rates are orders of magnitude, good for
choosing a queue until real batches have taught better.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.schema import CostCoefficients, Spec, Unit

CPU_FLOPS = 2e11
"""Operations per second that a CPU core reaches on a small model in float32, with idle embedding rows counted in."""

GPU_FLOPS = 2e13
"""Operations per second that a data-centre card reaches on a small model, far under its peak."""

CPU_BASE_MS = 2.0
"""What any batch takes on a CPU, however small: Python and some sixty small kernels."""

GPU_BASE_MS = 5.0
"""What any batch takes on a card: as many launches, and the copies there and back."""

CPU_WEIGHTS = 2e9
"""Weights per second that a CPU reads from its memory: 4 bytes each, at 8 GB/s a core."""

GPU_WEIGHTS = 5e11
"""Weights per second that a card reads from its memory: 2 bytes each, at 1 TB/s."""

UNIT_TOKENS: dict[Unit, int] = {"tokens": 1, "pages": 2308, "tiles": 577, "seconds": 50}
"""Tokens that a unit becomes: a tile is 336 by 336 pixels in patches of 14 and one more (CLIP ViT-L/14), a page four
tiles, a second of audio fifty frames (Whisper's encoder)."""

MOST_MS = 1e9
"""What an item is taken to cost at most: eleven days."""

WEIGHTLESS = CostCoefficients(base=0.05, per_token=0.0001)
"""A model without weights: bookkeeping only."""

_VOCABULARY = 30_522
"""Rows of an embedding table where nobody says (BERT)."""

_HIDDEN = range(64, 16_385)
_LAYERS = range(1, 129)


def coefficients(spec: Spec, device: str, *, layers: int = 0, hidden: int = 0) -> CostCoefficients:
    """The spec's own coefficients, else the guess for a kind of device (`cpu`, `cuda`, `cuda:1`; all else is a CPU).

    `layers` and `hidden` add the share of attention that grows with the square of the length; where nobody knows them
    they are taken from the spec as far as it tells.
    """
    if spec.cost is not None:
        return spec.cost
    if spec.parameters == 0:
        return WEIGHTLESS
    on_gpu = device.startswith("cuda")
    per_ms = (GPU_FLOPS if on_gpu else CPU_FLOPS) / 1000
    tokens = UNIT_TOKENS[spec.unit]
    if not (layers and hidden):
        layers, hidden = shape(spec)
    return CostCoefficients(
        base=GPU_BASE_MS if on_gpu else CPU_BASE_MS,
        per_token=2 * spec.parameters * tokens / per_ms,
        # Pages and tiles do not see one another.
        per_square=4 * layers * hidden * tokens**2 / per_ms if spec.unit in {"tokens", "seconds"} else 0.0,
        per_new=0.0
        if spec.tasks.generate is None
        else 1000 * spec.parameters / (GPU_WEIGHTS if on_gpu else CPU_WEIGHTS),
    )


def shape(spec: Spec) -> tuple[int, int]:
    """Layers and width of a model that encodes, or zeros where the spec does not tell.

    Its vectors are as wide as it is, and a layer has 12·width² weights (Kaplan et al., table 1).
    """
    hidden = 0 if spec.tasks.encode is None else spec.tasks.encode.dims
    layers = round((spec.parameters - _VOCABULARY * hidden) / (12 * hidden**2)) if hidden in _HIDDEN else 0
    return (layers, hidden) if layers in _LAYERS else (0, 0)


def predict(found: CostCoefficients, lengths: Sequence[int], new: int = 0) -> list[float]:
    """Milliseconds of each item of one job, given their lengths in the model's unit and the tokens each may generate.

    The batch's own cost is shared out evenly, so that the sum is what the job takes when it runs alone in one batch
    without padding.
    """
    if not lengths:
        return []
    share = found.base / len(lengths)
    return [min(share + found.item(length, new), MOST_MS) for length in lengths]
