"""Which size of batch is the quickest for its work, learned from passes that ran. Pure.

The time of a token falls with the size of its batch while the pass's own cost is shared by more, and rises again once
activations leave the cache. Where that turns depends on the machine and the model, so neighbouring sizes are tried now
and then and compared with the passes just before (a machine that slows down slows both), until it is plain which is the
better one. Sizes are padded tokens, or what the model counts in, on a ladder of powers of two and the halves between.
Where items are long beside that, such as documents of many pages, only sizes count that hold another number of them.

`Factors` is the other use of the same look: by how much passes of a size take longer or shorter than was fitted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

LADDER = tuple(sorted({int(2**power * half) for power in range(15) for half in (1, 1.5)} | {32_768}))
"""1, 2, 3, 4, 6, 8, 12, … 32,768."""

_LOGS = [math.log(size) for size in LADDER]
_EDGES = [(one + other) / 2 for one, other in pairwise(_LOGS)]

GAIN = math.log(1.03)
"""A larger batch must be this much quicker for its work: all its items wait for its end."""

_FIRST_PAUSE, _LONGEST_PAUSE = 4, 64
"""Full batches between two tries of another size, in the beginning and after many tries that changed nothing."""

_TRY = 4
"""Passes that a try lasts."""

_WAYS = (2, 1)
"""How many steps of the ladder a try is away: far first, where the difference is plain."""

_LEAST_TRIES = 3
_LEAST_HEARD = 2
_MOST_TRIES = 24
_MEMORY = 96
_LEVEL_MEMORY = 8
_ITEM_MEMORY = 16
_CALM = 4
_WILD = math.log(3)
_LEAST_VARIANCE = 0.015**2
"""No few tries are believed to be more alike than this."""


def step_of(tokens: float) -> int:
    """The step of the ladder that this size is nearest to."""
    return bisect_left(_EDGES, math.log(max(tokens, 1.0)))


@dataclass(frozen=True, slots=True)
class Rival:
    """How another size compares: mean and variance over its tries of the logarithm of its unit cost over that in use.

    A try counts once, not each of its passes: what else the machine does lasts longer than one pass, and so all passes
    of a try are wrong together.
    """

    mean: float = 0.0
    variance: float = 0.0
    tries: int = 0

    @property
    def doubt(self) -> float:
        """The standard error of the mean."""
        return math.sqrt(max(self.variance, _LEAST_VARIANCE) / self.tries) if self.tries else math.inf

    def tried(self, difference: float) -> Rival:
        """After one more try."""
        tries = min(self.tries + 1, _MOST_TRIES)
        off = difference - self.mean
        mean = self.mean + off / tries
        return Rival(mean, self.variance + (off * (difference - mean) - self.variance) / tries, tries)

    def better(self, by: float) -> bool | None:
        """Whether it beats the size in use by more than `by`; None while nobody can tell."""
        if self.tries < _LEAST_TRIES:
            return None
        gain = -self.mean - by
        # Near Student's t for 95 %: what so few tries say of their own spread is worth little.
        if abs(gain) > (2 + 6 / self.tries) * self.doubt:
            return gain > 0
        return None if self.tries < _MOST_TRIES and gain > 0 else False


@dataclass(frozen=True, slots=True)
class Sizing:
    """The size in use, and what is known of its neighbours. All numbers but `level` are steps or counts.

    `level` is the logarithm of what a unit of work takes at `size`, over recent passes; `calm` counts those since the
    last move. `turn` says which neighbour is tried next, beginning with those in the direction `upward`. A try of size
    `trying` has `left` passes to go, and those of that size until now, `heard` of them, add up to `sum`. The next try
    comes after `pause` full batches, of which there have been `since`. `item` is how long the longest item of a pass
    usually is.
    """

    size: int
    level: float = 0.0
    calm: int = 0
    since: int = 0
    pause: int = _FIRST_PAUSE
    turn: int = 0
    trying: int | None = None
    left: int = 0
    heard: int = 0
    sum: float = 0.0
    upward: bool = False
    item: float = 0.0
    rivals: Mapping[int, Rival] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """How large the next batch may be."""
        return LADDER[self.size if self.trying is None else self.trying]

    def learn(self, tokens: float, unit: float, item: float = 0.0) -> Sizing:
        """After a pass of this size whose work took `unit` milliseconds for each unit of it (batch cost included).

        `item` is the length of its longest item.
        """
        if not (math.isfinite(unit) and unit > 0 and math.isfinite(tokens) and tokens > 0 and 0 <= item <= tokens):
            return self
        now = replace(self, item=self.item + (item - self.item) / _ITEM_MEMORY if self.item else item)
        cost = math.log(unit)
        if now.trying is None:
            return now._used(cost) if _fills(now.size, tokens, item) else now
        if not _fills(now.trying, tokens, item):
            return now._tried()
        difference = min(max(cost - now.level, -_WILD), _WILD)
        return replace(now, heard=now.heard + 1, sum=now.sum + difference)._tried()

    def _used(self, cost: float) -> Sizing:
        """A full batch of the size in use. It shows that there is enough work to try others."""
        calm = min(self.calm + 1, _LEVEL_MEMORY)
        off = min(max(cost - self.level, -_WILD), _WILD) if self.calm else cost
        now = replace(self, calm=calm, level=self.level + off / calm if self.calm else cost, since=self.since + 1)
        if calm < _CALM or now.since < self.pause:
            return now
        neighbours = self._neighbours()
        if not neighbours:
            return now
        return replace(now, trying=neighbours[self.turn % len(neighbours)], left=_TRY, heard=0, sum=0.0, since=0)

    def _tried(self) -> Sizing:
        """One pass of the try is over, whatever size it had: without enough work waiting it is a smaller one.

        A size that may yet prove better is tried again at once; otherwise it is the next one's turn, and after a round
        without any gain the pauses grow.
        """
        if self.trying is None or self.left > 1:
            return replace(self, left=self.left - 1)
        rival = self.rivals.get(self.trying, Rival())
        if self.heard >= _LEAST_HEARD:
            rival = rival.tried(self.sum / self.heard)
        better = rival.better(self._margin(self.trying))
        if better:
            # Where it went well it goes on: the first tries of the new size are in the same direction.
            return Sizing(size=self.trying, upward=self.trying > self.size, item=self.item)
        over = replace(self, trying=None, left=0, since=0, rivals={**self.rivals, self.trying: rival})
        if better is None and self.heard >= _LEAST_HEARD:
            return over
        turn = (self.turn + 1) % max(1, len(self._neighbours()))
        return replace(over, turn=turn, pause=self.pause if turn else min(self.pause * 2, _LONGEST_PAUSE))

    def _margin(self, step: int) -> float:
        return GAIN if step > self.size else 0.0

    def _neighbours(self) -> list[int]:
        """The sizes to try, in their order."""
        ahead = 1 if self.upward else -1
        ways = [self._away(way, side) for way in _WAYS for side in (ahead, -ahead)]
        return list(dict.fromkeys(step for step in ways if 0 <= step < len(LADDER)))

    def _away(self, way: int, side: int) -> int:
        """So many steps away, or as many more as it takes for another number of items."""
        step = self.size + side * way
        while 0 <= step < len(LADDER) and self._items(step) == self._items(self.size):
            step += side
        return step

    def _items(self, step: int) -> float:
        """How many items of the usual length a batch of this size holds; its size where items are short."""
        size = LADDER[step]
        return max(1, int(size / self.item)) if self.item >= 1 else size

    def state(self) -> list[float]:
        """What is kept of it: the size in use and how settled it is."""
        return [self.size, self.pause]


def _fills(step: int, tokens: float, item: float) -> bool:
    """Whether a pass is as large as this step allows: nearest to it, or without room for one item more."""
    size = LADDER[step]
    return step_of(tokens) == step or (item > 0 and size - item < tokens <= max(size, item))


def sizing(tokens: int) -> Sizing:
    """A beginning with batches of this size."""
    return Sizing(size=step_of(tokens))


def restored(state: Sequence[float]) -> Sizing:
    """What was kept. Raises ValueError for what is none of ours."""
    size, pause = (int(number) for number in state)
    if not (0 <= size < len(LADDER) and _FIRST_PAUSE <= pause <= _LONGEST_PAUSE):
        raise ValueError("no state of a sizing")
    return Sizing(size=size, pause=pause)


@dataclass(frozen=True, slots=True)
class Factors:
    """By how much a pass takes longer than fitted, by its size: mean logarithms and the passes they are of."""

    means: Mapping[int, float] = field(default_factory=dict)
    counts: Mapping[int, int] = field(default_factory=dict)

    def of(self, tokens: float) -> float:
        """The factor for a size: between two steps in proportion, and outside those that were seen as at the last."""
        if not self.means:
            return 1.0
        steps = sorted(self.means)
        place = math.log(max(tokens, 1.0))
        above = next((step for step in steps if _LOGS[step] >= place), None)
        if above is None or above == steps[0]:
            return math.exp(self._mean(steps[-1] if above is None else above))
        below = steps[steps.index(above) - 1]
        share = (place - _LOGS[below]) / (_LOGS[above] - _LOGS[below])
        return math.exp((1 - share) * self._mean(below) + share * self._mean(above))

    def learn(self, tokens: float, ratio: float) -> Factors:
        """After a pass of this size that took `ratio` times what was fitted."""
        if not (math.isfinite(ratio) and ratio > 0 and math.isfinite(tokens)):
            return self
        step = step_of(tokens)
        count = min(self.counts.get(step, 0) + 1, _MEMORY)
        mean = self.means.get(step, 0.0)
        mean += (min(max(math.log(ratio), -_WILD), _WILD) - mean) / count
        return Factors({**self.means, step: mean}, {**self.counts, step: count})

    def _mean(self, step: int) -> float:
        """The mean, nearer to none the fewer passes it is of."""
        count = self.counts[step]
        return self.means[step] * count / (count + _CALM)

    def state(self) -> list[list[float]]:
        """The factors as plain numbers."""
        return [[step, self.means[step], self.counts[step]] for step in sorted(self.means)]


def restored_factors(state: Sequence[Sequence[float]]) -> Factors:
    """The factors of a state. Raises ValueError for what is none of ours."""
    means, counts = {}, {}
    for step, mean, count in state:
        if not (0 <= step < len(LADDER) and math.isfinite(mean) and 1 <= count <= _MEMORY):
            raise ValueError("no state of factors")
        means[int(step)], counts[int(step)] = float(mean), int(count)
    return Factors(means, counts)
