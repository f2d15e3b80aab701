"""The limit in process: ideal batches over all cores, in whichever of two ways is quicker on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.packing import deal, pack, padding
from tests.bench.peers import Peer
from tests.bench.texts import Text


@dataclass(frozen=True, slots=True)
class Ran:
    """What one way reached."""

    way: str
    tokens_per_s: float
    items_per_s: float
    cpu_us_per_token: float
    padding: float
    peak_mib: float


class Limit:
    """One process that uses all cores for a batch, and one process a core; each loaded once, idle in between."""

    def __init__(self, texts: Sequence[Text], budget: int) -> None:
        self._texts = texts
        self._batches = pack([text.tokens for text in texts], budget)
        self._wide: list[Peer] = []
        self._narrow: list[Peer] = []

    async def start(self, folder: Path, ending: AsyncExitStack) -> None:
        """Start the processes; `ending` stops them."""
        cores = os.cpu_count() or 1
        for peers, threads, count in ((self._wide, cores, 1), (self._narrow, 1, cores if cores > 1 else 0)):
            for _ in range(count):
                peer = await Peer.start("tests.bench.reference", str(folder), str(threads))
                ending.push_async_callback(peer.stop)
                peers.append(peer)

    async def run(self, seconds: float) -> list[Ran]:
        """Each way in turn, for `seconds` each."""
        ways = [("one process, all cores a batch", self._wide), ("one process a core", self._narrow)]
        return [await self._run(way, peers, seconds) for way, peers in ways if peers]

    async def _run(self, way: str, peers: Sequence[Peer], seconds: float) -> Ran:
        texts = [text.text for text in self._texts]
        lengths = [text.tokens for text in self._texts]
        dealt = deal(self._batches, len(peers))
        answers: list[dict[str, Any]] = await asyncio.gather(
            *(
                peer.ask(texts=texts, lengths=lengths, batches=batches, seconds=seconds)
                for peer, batches in zip(peers, dealt, strict=True)
            )
        )
        return Ran(
            way=way,
            tokens_per_s=sum(one["tokens"] / one["seconds"] for one in answers),
            items_per_s=sum(one["items"] / one["seconds"] for one in answers),
            cpu_us_per_token=sum(one["cpu_s"] for one in answers) / sum(one["tokens"] for one in answers) * 1e6,
            padding=padding(sum(one["tokens"] for one in answers), sum(one["computed"] for one in answers)),
            peak_mib=sum(one["peak_mib"] for one in answers),
        )

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """What the model gives for these texts."""
        answer: list[list[float]] = (await self._wide[0].ask(vectors=list(texts)))["vectors"]
        return answer
