"""What batches are lent for their activations, from what the device's account has for them.

A batch that is refused, because others on the device took the room since it was last looked at, is computed in smaller
parts. If not even one item has room, idle models leave, and then the batch waits for what other passes give back. Only
where nothing computes that could give anything back is the account passed: for one item, which fails by itself if the
device has no memory for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from engine.hand import Run
from engine.ledger import Ledger
from engine.means import Means

WAIT_S = 1.0
"""How long a batch waits for room while nothing of this process computes, but others on the device may make some."""

_LOOK_S = 0.05


def borrow(book: Ledger, model: str, per_token: int, lengths: Sequence[int], tokens: int) -> tuple[int, int]:
    """Lend a batch that computes so many tokens its bytes, or those of a part of it.

    Gives the bytes that were lent, and how many items may be computed at once. No items if there is no room for one.
    """
    if not per_token or book.try_lend(per_token * tokens, model):
        return per_token * tokens, len(lengths)
    # The refusal has brought the account's word up to date.
    each = per_token * max(lengths)
    items = min(len(lengths), max(0, book.lendable) // each)
    if items and book.try_lend(items * each, model):
        return items * each, items
    return 0, 0


class Waiting:
    """Batches of one place for which there is no room yet."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._given_back = threading.Condition(means.lock)

    def memory_back(self) -> None:
        """Memory was given back. Under the lock."""
        self._given_back.notify_all()

    def until_lent(self, run: Run) -> None:
        """Lend a run what one item of it lacks, once there is room. Without the lock."""
        means, model = self._means, run.batch.model
        until = means.clock() + WAIT_S
        relieve = means.relief(model)
        while True:
            with means.lock:
                book = means.residency.book(model)
                given = book.try_lend(run.lacking, model)
                computes = any(not other.lacking for other in means.hand.running.values())
                if not given and (not means.hand.open or (not computes and means.clock() >= until)):
                    book.lend(run.lacking, model)
                    given = True
                if given:
                    run.lent, run.lacking = run.lacking, 0
                    return
            if not relieve():
                with means.lock:
                    self._given_back.wait(_LOOK_S)
