"""What the engine may take, and what follows from it for a model's batches. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.cost import UNIT_TOKENS
from catalog.schema import Spec
from engine.batcher import Bounds
from engine.costs import CostBook, Pass
from engine.device import Device, DeviceKind

_TOKENS = {DeviceKind.CPU: 1024, DeviceKind.CUDA: 16_384, DeviceKind.FAKE: 16_384}
"""Padded tokens of a batch where nobody set them. Small batches win on a CPU: see docs/benchmarks.md."""

_PROVED = {DeviceKind.CPU: (256, 8192), DeviceKind.CUDA: (2048, 131_072), DeviceKind.FAKE: (256, 131_072)}
"""Between what sizes of batch, in tokens, what has proved the quickest is looked for."""

_CHEAP_MS = 10.0
"""A batch is not cut for its tokens while all of it is predicted to cost less than this."""

_OVERHEAD_MS = 1.0
"""What a batch costs besides its time on the device: picking, reporting, committing."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine may take and how long it may take it.

    Zero `lanes` take one for each core of a CPU and one on a card; zero `batch_tokens` leave it to the device and the
    model. `preload` models are loaded at the start, `pinned` ones are too and never leave. `loaders` bounds how many
    models are loaded at once, `host_bytes` what evicted and host-bound models may take in host memory, `host_lanes` how
    many batches of host-bound models run beside the device's. A model that nobody used for `keep_alive_s` leaves,
    unless its spec says otherwise; None keeps it until room is needed. `step_ms` is the most that one step of a model
    that generates should take. Whoever listens ends a batch or load that runs past its limit, by killing the process.
    """

    budget_bytes: int
    lanes: int = 0
    batch_tokens: int = 0
    batch_items: int = 256
    batch_limit_s: float = 120.0
    load_limit_s: float = 600.0
    preload: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    loaders: int = 1
    host_bytes: int = 0
    host_lanes: int = 1
    keep_alive_s: float | None = None
    step_ms: float = 50.0


def lane_count(limits: EngineLimits, device: Device) -> int:
    """How many batches are computed at once."""
    if limits.lanes:
        return limits.lanes
    return 1 if device.kind is DeviceKind.CUDA else device.cores


def lane_threads(limits: EngineLimits, device: Device) -> int:
    """How many threads a batch computes with while others run beside it."""
    return max(1, device.cores // lane_count(limits, device))


def floor_tokens(limits: EngineLimits, device: Device) -> int:
    """The padded tokens for whose activations every loaded model keeps room."""
    return limits.batch_tokens or _TOKENS[device.kind]


def bounds(model: str, spec: Spec, limits: EngineLimits, device: Device, costs: CostBook) -> Bounds:
    """What a batch of this model may be while the device has room, by what is known of its cost now."""
    cost = costs.coefficients(model, spec, Pass.RUN, lane_threads(limits, device))
    # What is counted in pages or tiles is bounded by the tokens that these become.
    each = UNIT_TOKENS[spec.unit]
    least, most = (max(1, tokens // each) for tokens in _PROVED[device.kind])
    said = max(1, limits.batch_tokens // each) if limits.batch_tokens else None
    tokens = said or costs.batch_tokens(model, least, most)
    if not tokens:
        cheap = int(_CHEAP_MS / cost.per_token) if cost.per_token > 0 else 2**62
        tokens = max(1, _TOKENS[device.kind] // each, cheap)
    return Bounds(limits.batch_items, tokens, cost, _OVERHEAD_MS)
